#include "garam/text/sentencepiece_model.h"

#include <bit>
#include <fstream>
#include <sstream>

#include "garam/core/error.h"
#include "garam/text/unicode.h"
#include "garam/text/vocabulary.h"

namespace garam {
namespace {

constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{256} << 20;

// One message of protobuf's wire format, field by field.
class WireReader {
  public:
    WireReader(std::string_view bytes, std::string where)
        : bytes_(bytes), where_(std::move(where)) {}

    struct Field {
        std::uint64_t number = 0;
        enum class Type { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 } type = Type::varint;
        std::uint64_t value = 0;  // of a number
        std::string_view bytes;
    };

    bool next(Field& field) {
        if (at_ == bytes_.size()) return false;
        const std::uint64_t tag = varint();
        field.number = tag >> 3;
        const std::uint64_t type = tag & 7;
        if (field.number == 0) fail("a field without a number");
        field.bytes = {};
        field.type = static_cast<Field::Type>(type);
        switch (type) {
            case 0:
                field.value = varint();
                break;
            case 1:
                field.value = fixed(8);
                break;
            case 2: {
                const std::uint64_t size = varint();
                if (size > bytes_.size() - at_) fail("it is cut off");
                field.bytes = bytes_.substr(at_, size);
                at_ += size;
                break;
            }
            case 5:
                field.value = fixed(4);
                break;
            default:
                fail("a field of the unknown type " + std::to_string(type));
        }
        return true;
    }

    std::string_view bytes_of(const Field& field) const {
        if (field.type != Field::Type::bytes) fail("a number where a text or a message must be");
        return field.bytes;
    }
    std::int64_t integer_of(const Field& field) const {
        if (field.type != Field::Type::varint) fail("no whole number where one must be");
        return static_cast<std::int64_t>(field.value);
    }
    bool flag_of(const Field& field) const { return integer_of(field) != 0; }
    float number_of(const Field& field) const {
        if (field.type != Field::Type::fixed32) fail("no float where one must be");
        return std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
    }

  private:
    [[noreturn]] void fail(const std::string& what) const {
        throw Error(where_ + ": no SentencePiece model: " + what + " at byte " +
                    std::to_string(at_));
    }
    std::uint64_t varint() {
        std::uint64_t value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            if (at_ == bytes_.size()) fail("it is cut off");
            const auto byte = static_cast<unsigned char>(bytes_[at_++]);
            value |= std::uint64_t{byte & 0x7Fu} << shift;
            if (byte < 0x80) return value;
        }
        fail("a number of more than 64 bits");
    }
    std::uint64_t fixed(std::size_t size) {
        if (size > bytes_.size() - at_) fail("it is cut off");
        std::uint64_t value = 0;
        for (std::size_t i = 0; i < size; ++i)
            value |= std::uint64_t{static_cast<unsigned char>(bytes_[at_++])} << 8 * i;
        return value;
    }

    std::string_view bytes_;
    std::string where_;
    std::size_t at_ = 0;
};

using Field = WireReader::Field;

SentencePieceModel::Piece read_piece(std::string_view bytes, const std::string& where) {
    SentencePieceModel::Piece piece;
    WireReader reader(bytes, where);
    for (Field field; reader.next(field);) {
        if (field.number == 1) piece.text = reader.bytes_of(field);
        if (field.number == 2) piece.score = reader.number_of(field);
        if (field.number == 3) {
            const std::int64_t type = reader.integer_of(field);
            if (type < 1 || type > 6)
                throw Error(where + ": a piece of the unknown type " + std::to_string(type));
            piece.type = static_cast<SentencePieceModel::Type>(type);
        }
    }
    if (first_invalid_utf8(piece.text) != std::string_view::npos)
        throw Error(where + ": the piece is not valid UTF-8");
    return piece;
}

void read_trainer_spec(std::string_view bytes, const std::string& where,
                       SentencePieceModel& model) {
    WireReader reader(bytes, where);
    // The numbers of sentencepiece_model.proto.
    for (Field field; reader.next(field);) {
        switch (field.number) {
            case 3: {
                const std::int64_t kind = reader.integer_of(field);
                if (kind < 1 || kind > 4)
                    throw Error(where + ": a model of the unknown type " + std::to_string(kind));
                model.kind = static_cast<SentencePieceModel::Kind>(kind);
                break;
            }
            case 24:
                model.treat_whitespace_as_suffix = reader.flag_of(field);
                break;
            case 35:
                model.byte_fallback = reader.flag_of(field);
                break;
            case 40:
                model.unk_id = reader.integer_of(field);
                break;
            case 41:
                model.bos_id = reader.integer_of(field);
                break;
            case 42:
                model.eos_id = reader.integer_of(field);
                break;
            case 43:
                model.pad_id = reader.integer_of(field);
                break;
            default:
                break;
        }
    }
}

void read_normalizer_spec(std::string_view bytes, const std::string& where,
                          SentencePieceModel& model) {
    WireReader reader(bytes, where);
    for (Field field; reader.next(field);) {
        if (field.number == 1) model.normalizer = reader.bytes_of(field);
        if (field.number == 2) model.precompiled_charsmap = reader.bytes_of(field);
        if (field.number == 3) model.add_dummy_prefix = reader.flag_of(field);
        if (field.number == 4) model.remove_extra_whitespaces = reader.flag_of(field);
        if (field.number == 5) model.escape_whitespaces = reader.flag_of(field);
    }
}

}  // namespace

SentencePieceModel parse_sentencepiece_model(std::string_view bytes, const std::string& source) {
    SentencePieceModel model;
    WireReader reader(bytes, source);
    for (Field field; reader.next(field);) {
        if (field.number == 1) {
            if (model.pieces.size() >= static_cast<std::size_t>(Vocabulary::kMaxIds))
                throw Error(source + ": more than " + std::to_string(Vocabulary::kMaxIds) +
                            " pieces are not supported");
            model.pieces.push_back(read_piece(
                reader.bytes_of(field), source + ": piece " + std::to_string(model.pieces.size())));
        } else if (field.number == 2) {
            read_trainer_spec(reader.bytes_of(field), source + ": trainer_spec", model);
        } else if (field.number == 3) {
            read_normalizer_spec(reader.bytes_of(field), source + ": normalizer_spec", model);
        }
    }
    if (model.pieces.empty()) throw Error(source + ": no SentencePiece model: it holds no pieces");
    return model;
}

SentencePieceModel read_sentencepiece_model(const std::filesystem::path& file) {
    if (std::filesystem::file_size(file) > kMaxFileBytes)
        throw Error(file.string() + ": more than 256 MiB are no SentencePiece model");
    std::ifstream in(file, std::ios::binary);
    std::ostringstream content;
    content << in.rdbuf();
    if (!in) throw Error(file.string() + ": cannot be read");
    return parse_sentencepiece_model(content.str(), file.string());
}

}  // namespace garam
