// safetensors and GGUF files changed field by field, with the lengths around a change kept true or not.
#include <cstring>
#include <iterator>

#include "fuzz/mutate.h"

namespace garam::fuzz {
namespace {

const std::vector<std::string>& safetensors_words() {
    static const std::vector<std::string> words = {
        "dtype", "shape", "data_offsets", "__metadata__", "F32",     "F16",    "BF16", "I64",
        "I32",   "U8",    "F64",          "BOOL",         "F8_E4M3", "format", "pt"};
    return words;
}

template <typename T>
bool read(const std::string& bytes, std::size_t at, T& value) {
    if (at > bytes.size() || bytes.size() - at < sizeof value) return false;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return true;
}

// Walks through a GGUF file as far as it makes sense and notes where its fields lie.
class GgufFields {
  public:
    struct Field {
        std::size_t at = 0;
        std::size_t width = 0;
        enum class Kind { count, type, length, number } kind = Kind::number;
    };
    struct Entry {  // a key with its value, or a tensor
        std::size_t begin = 0;
        std::size_t end = 0;
        std::size_t counter = 0;  // where the number of its kind is
    };

    explicit GgufFields(const std::string& bytes) : bytes_(bytes) {
        std::uint64_t tensors = 0;
        std::uint64_t keys = 0;
        at_ = 4;
        if (!number(4, Field::Kind::type) || !take(tensors, Field::Kind::count) ||
            !take(keys, Field::Kind::count))
            return;
        for (std::uint64_t i = 0; i < keys && fields.size() < 20000; ++i) {
            const std::size_t begin = at_;
            std::uint32_t type = 0;
            if (!text() || !take(type, Field::Kind::type) || !value(type, 0)) return;
            entries.push_back({begin, at_, 16});
        }
        for (std::uint64_t i = 0; i < tensors && fields.size() < 20000; ++i) {
            const std::size_t begin = at_;
            std::uint32_t rank = 0;
            if (!text() || !take(rank, Field::Kind::count) || rank > 8) return;
            for (std::uint32_t d = 0; d < rank; ++d)
                if (!number(8, Field::Kind::number)) return;
            if (!number(4, Field::Kind::type) || !number(8, Field::Kind::number)) return;
            entries.push_back({begin, at_, 8});
        }
    }

    std::vector<Field> fields;
    std::vector<Entry> entries;
    std::vector<std::size_t> texts;  // where their lengths are

  private:
    bool number(std::size_t width, Field::Kind kind) {
        if (at_ > bytes_.size() || bytes_.size() - at_ < width) return false;
        fields.push_back({at_, width, kind});
        at_ += width;
        return true;
    }
    template <typename T>
    bool take(T& value, Field::Kind kind) {
        return read(bytes_, at_, value) && number(sizeof value, kind);
    }
    bool text() {
        std::uint64_t length = 0;
        texts.push_back(at_);
        if (!take(length, Field::Kind::length) || length > bytes_.size() - at_) return false;
        at_ += length;
        return true;
    }
    bool value(std::uint32_t type, int depth) {
        constexpr std::size_t kWidths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
        if (type == 8) return text();
        if (type == 9) {
            std::uint32_t of = 0;
            std::uint64_t count = 0;
            if (depth > 4 || !take(of, Field::Kind::type) || !take(count, Field::Kind::count))
                return false;
            for (std::uint64_t i = 0; i < count && fields.size() < 20000; ++i)
                if (!value(of, depth + 1)) return false;
            return true;
        }
        return type < std::size(kWidths) && number(kWidths[type], Field::Kind::number);
    }

    const std::string& bytes_;
    std::size_t at_ = 0;
};

void add_to_count(std::string& bytes, std::size_t at, std::int64_t change) {
    std::uint64_t count = 0;
    if (!read(bytes, at, count)) return;
    count += static_cast<std::uint64_t>(change);
    std::memcpy(bytes.data() + at, &count, sizeof count);
}

}  // namespace

void mutate_safetensors(std::string& bytes, const std::string& other, Random& random) {
    std::uint64_t length = 0;
    if (!read(bytes, 0, length) || length > bytes.size() - 8)
        return mutate_bytes(bytes, other, random);
    std::string header = bytes.substr(8, length);
    std::string data = bytes.substr(8 + length);
    switch (random.below(10)) {
        case 0:
            length = edge_number(random);
            std::memcpy(bytes.data(), &length, 8);
            return;
        case 1:
            length += random.below(17) - 8;
            std::memcpy(bytes.data(), &length, 8);
            return;
        case 2:
            mutate_bytes(data, other, random);
            break;
        case 3: {  // NaN, infinity and other odd values
            const std::uint32_t value =
                static_cast<std::uint32_t>(edge_number(random)) | 0x7f800000u;
            if (data.size() >= 4)
                std::memcpy(data.data() + random.below(data.size() / 4) * 4, &value, 4);
            break;
        }
        default: {
            std::uint64_t other_length = 0;
            std::string other_header;
            if (read(other, 0, other_length) && other_length <= other.size() - 8)
                other_header = other.substr(8, other_length);
            mutate_json(header, other_header, safetensors_words(), random);
        }
    }
    length = header.size();
    bytes.assign(reinterpret_cast<const char*>(&length), 8);
    bytes += header + data;
}

void mutate_gguf(std::string& bytes, const std::string& other, Random& random) {
    const GgufFields found(bytes);
    if (found.fields.empty() || found.entries.empty()) return mutate_bytes(bytes, other, random);
    const auto& entry = found.entries[random.below(found.entries.size())];
    switch (random.below(10)) {
        case 0:
        case 1:
        case 2:
        case 3: {
            const auto& field = found.fields[random.below(found.fields.size())];
            std::uint64_t value = edge_number(random);
            if (field.kind == GgufFields::Field::Kind::type)
                value = random.below(random.below(8) == 0 ? 300 : 42);
            if (field.kind == GgufFields::Field::Kind::count && random.below(2) == 0)
                value = random.below(6);
            std::memcpy(bytes.data() + field.at, &value, field.width);
            return;
        }
        case 4:  // a key or tensor again
            bytes.insert(entry.begin, bytes.substr(entry.begin, entry.end - entry.begin));
            if (random.below(8) != 0) add_to_count(bytes, entry.counter, 1);
            return;
        case 5:  // or gone
            bytes.erase(entry.begin, entry.end - entry.begin);
            if (random.below(8) != 0) add_to_count(bytes, entry.counter, -1);
            return;
        case 6:
        case 7: {  // another text, with its true length
            const std::size_t at = found.texts[random.below(found.texts.size())];
            std::uint64_t length = 0;
            if (!read(bytes, at, length) || length > bytes.size() - at - 8) return;
            std::string text = bytes.substr(at + 8, length);
            const std::size_t from = found.texts[random.below(found.texts.size())];
            std::uint64_t their_length = 0;
            if (random.below(2) == 0 && read(bytes, from, their_length) &&
                their_length <= bytes.size() - from - 8)
                text = bytes.substr(from + 8, their_length);
            else
                text.insert(random.below(text.size() + 1), odd_text(random));
            their_length = text.size();
            bytes.replace(at, 8 + length,
                          std::string(reinterpret_cast<const char*>(&their_length), 8) + text);
            return;
        }
        case 8: {  // a key or tensor of the other file
            const GgufFields theirs(other);
            if (theirs.entries.empty()) return mutate_bytes(bytes, other, random);
            const auto& from = theirs.entries[random.below(theirs.entries.size())];
            if (from.counter != entry.counter) return;
            bytes.insert(entry.begin, other.substr(from.begin, from.end - from.begin));
            add_to_count(bytes, entry.counter, 1);
            return;
        }
        default:
            mutate_bytes(bytes, other, random);
    }
}

}  // namespace garam::fuzz
