#include "garam/io/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <unordered_map>

#include "garam/core/error.h"
#include "garam/io/gguf_split.h"
#include "garam/io/mapped_file.h"

static_assert(std::endian::native == std::endian::little, "files are little-endian, and mapped");

namespace garam {
namespace {

constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kLargestAlignment = std::uint64_t{1} << 30;
constexpr std::uint64_t kLongestName = 65535;
constexpr int kDeepestArray = 8;
constexpr std::string_view kSupportedTypes =
    "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, I32, I64";

// Bytes of the smallest key (an empty name, a type, one byte) and of the smallest tensor entry (an
// empty name, no dimensions, a type, an offset): what bounds the counts that a header may claim.
constexpr std::uint64_t kSmallestKey = 8 + 4 + 1;
constexpr std::uint64_t kSmallestTensor = 8 + 4 + 4 + 8;

// Ids of the specification's gguf_metadata_value_type.
enum class ValueType : std::uint32_t {
    u8,
    i8,
    u16,
    i16,
    u32,
    i32,
    f32,
    boolean,
    string,
    array,
    u64,
    i64,
    f64
};
constexpr std::uint32_t kValueTypes = 13;

// Fewest bytes that one value takes.
std::uint64_t least_bytes(ValueType type) {
    constexpr std::array<std::uint64_t, kValueTypes> kBytes = {1, 1, 2,  2, 4, 4, 4,
                                                               1, 8, 12, 8, 8, 8};
    return kBytes[static_cast<std::size_t>(type)];
}

// Names of ggml_type, by id; empty ones were withdrawn.
constexpr std::array<std::string_view, 40> kBlockTypes = {
    "F32",     "F16",    "Q4_0",    "Q4_1",  "",       "",      "Q5_0",  "Q5_1",
    "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
    "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
    "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16",  "",
    "",        "",       "TQ1_0",   "TQ2_0", "",       "",      "",      "MXFP4"};

}  // namespace

std::optional<std::uint32_t> ggml_type_of(StoredType type) {
    switch (type) {
        case StoredType::f32:
            return 0;
        case StoredType::f16:
            return 1;
        case StoredType::q4_0:
            return 2;
        case StoredType::q4_1:
            return 3;
        case StoredType::q5_0:
            return 6;
        case StoredType::q5_1:
            return 7;
        case StoredType::q8_0:
            return 8;
        case StoredType::q4_k:
            return 12;
        case StoredType::q5_k:
            return 13;
        case StoredType::q6_k:
            return 14;
        case StoredType::iq4_nl:
            return 20;
        case StoredType::iq4_xs:
            return 23;
        case StoredType::i32:
            return 26;
        case StoredType::i64:
            return 27;
        case StoredType::bf16:
            return 30;
        case StoredType::u8:
        case StoredType::nf4:
        case StoredType::fp4:
            break;
    }
    return std::nullopt;
}

namespace {

// Whether `id` names a supported block type; sets it.
bool stored_type_of(std::uint32_t id, StoredType& type) {
    for (int t = 0; t <= static_cast<int>(StoredType::iq4_xs); ++t) {
        if (ggml_type_of(static_cast<StoredType>(t)) != id) continue;
        type = static_cast<StoredType>(t);
        return true;
    }
    return false;
}

// Well-formed UTF-8 (RFC 3629: no overlong forms, surrogates or values above U+10FFFF).
bool is_utf8(std::string_view text) {
    for (std::size_t i = 0; i < text.size();) {
        const auto lead = static_cast<unsigned char>(text[i]);
        const std::size_t length = lead < 0x80 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
        if ((lead >= 0x80 && lead < 0xc2) || lead > 0xf4 || i + length > text.size()) return false;
        std::uint32_t code = length == 1 ? lead : lead & (0x7fu >> length);
        for (std::size_t k = 1; k < length; ++k) {
            const auto next = static_cast<unsigned char>(text[i + k]);
            if ((next & 0xc0) != 0x80) return false;
            code = (code << 6) | (next & 0x3fu);
        }
        if ((length == 3 && code < 0x800) || (length == 4 && code < 0x10000) || code > 0x10ffff ||
            (code >= 0xd800 && code <= 0xdfff))
            return false;
        i += length;
    }
    return true;
}

// Takes values from the front of the file; `context` names what is being read for the messages.
class Reader {
  public:
    Reader(std::span<const std::byte> bytes, std::string file)
        : bytes_(bytes), file_(std::move(file)) {}

    [[noreturn]] void fail(const std::string& what) const {
        throw Error(file_ +
                    ": not a valid GGUF file: " + (context_.empty() ? "" : context_ + ": ") + what);
    }
    void set_context(std::string context) { context_ = std::move(context); }
    std::size_t position() const { return position_; }
    std::uint64_t left() const { return bytes_.size() - position_; }

    template <typename T>
    T take() {
        need(sizeof(T));
        T value;
        std::memcpy(&value, bytes_.data() + position_, sizeof(T));
        position_ += sizeof(T);
        return value;
    }

    std::string_view take_string() {
        const auto length = take<std::uint64_t>();
        need(length);
        const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + position_,
                                    static_cast<std::size_t>(length));
        position_ += static_cast<std::size_t>(length);
        return text;
    }

    std::string take_name(const char* kind) {
        const std::string_view name = take_string();
        if (name.size() > kLongestName)
            fail("the name of a " + std::string(kind) + " has more than 65535 bytes");
        if (!is_utf8(name)) fail("the name of a " + std::string(kind) + " is not UTF-8");
        return std::string(name);
    }

    ValueType take_value_type() {
        const auto type = take<std::uint32_t>();
        if (type >= kValueTypes) fail("unknown value type " + std::to_string(type));
        return static_cast<ValueType>(type);
    }

    Json take_value(ValueType type, int depth = 0) {
        switch (type) {
            case ValueType::u8:
                return Json(std::int64_t{take<std::uint8_t>()});
            case ValueType::i8:
                return Json(std::int64_t{take<std::int8_t>()});
            case ValueType::u16:
                return Json(std::int64_t{take<std::uint16_t>()});
            case ValueType::i16:
                return Json(std::int64_t{take<std::int16_t>()});
            case ValueType::u32:
                return Json(std::int64_t{take<std::uint32_t>()});
            case ValueType::i32:
                return Json(std::int64_t{take<std::int32_t>()});
            case ValueType::f32:
                return Json(static_cast<double>(take<float>()));
            case ValueType::f64:
                return Json(take<double>());
            case ValueType::i64:
                return Json(take<std::int64_t>());
            case ValueType::u64: {
                const auto value = take<std::uint64_t>();
                return value > static_cast<std::uint64_t>(INT64_MAX)
                           ? Json(static_cast<double>(value))
                           : Json(static_cast<std::int64_t>(value));
            }
            case ValueType::boolean: {
                const auto value = take<std::uint8_t>();
                if (value > 1) fail("a bool is " + std::to_string(value) + ", not 0 or 1");
                return Json(value == 1);
            }
            case ValueType::string:
                return Json(take_string());
            case ValueType::array:
                return take_array(depth);
        }
        fail("unknown value type");
    }

  private:
    void need(std::uint64_t bytes) const {
        if (bytes > left())
            fail("needs " + std::to_string(bytes) + " bytes at byte " + std::to_string(position_) +
                 ", the file has " + std::to_string(bytes_.size()) +
                 "; perhaps its download is incomplete");
    }

    Json take_array(int depth) {
        if (depth == kDeepestArray) fail("arrays nested too deeply");
        const ValueType type = take_value_type();
        const auto count = take<std::uint64_t>();
        if (count > left() / least_bytes(type))
            fail("an array of " + std::to_string(count) + " values is longer than the file");
        Json::Array values;
        values.reserve(static_cast<std::size_t>(count));
        for (std::uint64_t i = 0; i < count; ++i)
            values.push_back(take_value(type, depth + 1));
        return Json(std::move(values));
    }

    std::span<const std::byte> bytes_;
    std::string file_;
    std::string context_;
    std::size_t position_ = 0;
};

class MappedGguf : public GgufFile {
  public:
    explicit MappedGguf(const std::filesystem::path& path)
        : file_(path), reader_(file_.bytes(), path.string()) {
        const auto [tensor_count, key_count] = read_header();
        read_keys(key_count);
        read_tensors(tensor_count);
    }

    const std::filesystem::path& path() const override { return file_.path(); }
    const Json* find(std::string_view key) const override {
        const auto found = index_.find(key);
        return found == index_.end() ? nullptr : &keys_[found->second].second;
    }
    const Json::Object& keys() const override { return keys_; }
    const std::vector<StoredTensor>& tensors() const override { return tensors_; }

  private:
    std::pair<std::uint64_t, std::uint64_t> read_header() {
        if (file_.size() < 4 || std::memcmp(file_.data(), "GGUF", 4) != 0)
            reader_.fail("it does not begin with \"GGUF\"");
        reader_.take<std::uint32_t>();
        const auto version = reader_.take<std::uint32_t>();
        if ((version & 0xffffu) == 0)
            throw Error(path().string() + ": big-endian GGUF files are not supported");
        if (version != 2 && version != 3)
            throw Error(path().string() + ": GGUF version " + std::to_string(version) +
                        " is not supported; supported are 2 and 3");
        const auto tensor_count = reader_.take<std::uint64_t>();
        const auto key_count = reader_.take<std::uint64_t>();
        if (tensor_count > reader_.left() / kSmallestTensor)
            reader_.fail("it claims " + std::to_string(tensor_count) + " tensors, more than fit");
        if (key_count > reader_.left() / kSmallestKey)
            reader_.fail("it claims " + std::to_string(key_count) + " keys, more than fit");
        return {tensor_count, key_count};
    }

    void read_keys(std::uint64_t count) {
        keys_.reserve(static_cast<std::size_t>(count));
        for (std::uint64_t i = 0; i < count; ++i) {
            reader_.set_context("key number " + std::to_string(i));
            std::string key = reader_.take_name("key");
            reader_.set_context("key " + key);
            const ValueType type = reader_.take_value_type();
            keys_.emplace_back(std::move(key), reader_.take_value(type));
            // Names stay where they are from here on: the vector does not grow beyond its reserve.
            if (!index_.emplace(keys_.back().first, keys_.size() - 1).second)
                reader_.fail("is there twice");
        }
        reader_.set_context("");
        const Json* alignment = find("general.alignment");
        if (alignment == nullptr) return;
        if (!alignment->is_int() || alignment->integer() <= 0 ||
            alignment->integer() > static_cast<std::int64_t>(kLargestAlignment) ||
            !std::has_single_bit(static_cast<std::uint64_t>(alignment->integer())))
            reader_.fail("general.alignment must be a power of two");
        alignment_ = static_cast<std::uint64_t>(alignment->integer());
    }

    void read_tensors(std::uint64_t count) {
        tensors_.reserve(static_cast<std::size_t>(count));
        std::vector<std::uint64_t> offsets;
        offsets.reserve(static_cast<std::size_t>(count));
        std::unordered_map<std::string_view, std::size_t> names;
        for (std::uint64_t i = 0; i < count; ++i) {
            reader_.set_context("tensor number " + std::to_string(i));
            tensors_.push_back(read_entry(offsets));
            if (!names.emplace(tensors_.back().name, tensors_.size()).second)
                reader_.fail("is there twice");
        }
        reader_.set_context("");
        if (count == 0) return;
        const std::uint64_t begin = (reader_.position() + alignment_ - 1) & ~(alignment_ - 1);
        const std::uint64_t available = begin <= file_.size() ? file_.size() - begin : 0;
        for (std::size_t i = 0; i < tensors_.size(); ++i) {
            StoredTensor& tensor = tensors_[i];
            reader_.set_context("tensor " + tensor.name);
            if (offsets[i] % alignment_ != 0)
                reader_.fail("its offset " + std::to_string(offsets[i]) + " is no multiple of " +
                             std::to_string(alignment_));
            if (offsets[i] > available || tensor.bytes > available - offsets[i])
                reader_.fail("its " + std::to_string(tensor.bytes) + " bytes at offset " +
                             std::to_string(offsets[i]) + " end beyond the file, whose data has " +
                             std::to_string(available) + "; perhaps its download is incomplete");
            // An empty tensor of a file without data has no place.
            tensor.data = begin <= file_.size() ? file_.data() + begin + offsets[i] : nullptr;
        }
        check_overlap();
        reader_.set_context("");
    }

    // One entry of the tensor table; its offset is appended, its place is set later.
    StoredTensor read_entry(std::vector<std::uint64_t>& offsets) {
        StoredTensor tensor;
        tensor.name = reader_.take_name("tensor");
        reader_.set_context("tensor " + tensor.name);
        const auto rank = reader_.take<std::uint32_t>();
        if (rank > Shape::kMaxRank)
            reader_.fail("has " + std::to_string(rank) + " dimensions; at most 4 are supported");
        std::array<std::uint64_t, Shape::kMaxRank> extents{};
        for (std::uint32_t axis = 0; axis < rank; ++axis) {
            extents[axis] = reader_.take<std::uint64_t>();
            if (extents[axis] > static_cast<std::uint64_t>(INT64_MAX))
                reader_.fail("a dimension is larger than any file");
        }
        // The file lists the fastest dimension first.
        for (std::uint32_t axis = rank; axis > 0; --axis)
            tensor.shape.append(static_cast<std::int64_t>(extents[axis - 1]));

        const auto type = reader_.take<std::uint32_t>();
        if (!stored_type_of(type, tensor.type)) {
            const bool known = type < kBlockTypes.size() && !kBlockTypes[type].empty();
            throw Error(
                path().string() + ": tensor " + tensor.name + " is of type " +
                (known ? std::string(kBlockTypes[type]) : "number " + std::to_string(type)) +
                ", which is not supported; supported are " + std::string(kSupportedTypes));
        }
        std::int64_t elements = 1;
        std::int64_t bytes = 0;
        bool overflow = false;
        for (std::uint32_t axis = 0; axis < rank; ++axis)
            overflow |=
                __builtin_mul_overflow(elements, tensor.shape[static_cast<int>(axis)], &elements);
        const std::int64_t block = block_elements(tensor.type);
        if (tensor.shape.back() % block != 0)
            reader_.fail("rows of " + std::to_string(tensor.shape.back()) +
                         " elements are no whole " + std::string(name_of(tensor.type)) +
                         " blocks of " + std::to_string(block));
        overflow |= __builtin_mul_overflow(
            elements / block, static_cast<std::int64_t>(block_bytes(tensor.type)), &bytes);
        if (overflow)
            reader_.fail("shape " + tensor.shape.to_string() + " is larger than any file");
        tensor.bytes = static_cast<std::size_t>(bytes);
        offsets.push_back(reader_.take<std::uint64_t>());
        return tensor;
    }

    void check_overlap() {
        std::vector<const StoredTensor*> order;
        for (const StoredTensor& tensor : tensors_) {
            if (tensor.bytes > 0) order.push_back(&tensor);
        }
        std::sort(order.begin(), order.end(),
                  [](const StoredTensor* a, const StoredTensor* b) { return a->data < b->data; });
        for (std::size_t i = 1; i < order.size(); ++i) {
            if (order[i]->data >= order[i - 1]->data + order[i - 1]->bytes) continue;
            reader_.set_context("tensor " + order[i]->name);
            reader_.fail("overlaps " + order[i - 1]->name);
        }
    }

    MappedFile file_;
    Reader reader_;
    std::uint64_t alignment_ = kDefaultAlignment;
    Json::Object keys_;
    std::unordered_map<std::string_view, std::size_t> index_;  // views of the keys' names
    std::vector<StoredTensor> tensors_;
};

}  // namespace

std::shared_ptr<const GgufFile> GgufFile::open(const std::filesystem::path& path) {
    const auto open_one = [](const std::filesystem::path& file) -> std::shared_ptr<const GgufFile> {
        return std::make_shared<const MappedGguf>(file);
    };
    return join_gguf_parts(open_one(path), open_one);
}

}  // namespace garam
