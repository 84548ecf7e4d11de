#include "garam/io/gguf_writer.h"

#include <bit>
#include <limits>
#include <unordered_set>

#include "garam/core/error.h"
#include "garam/io/gguf.h"

static_assert(std::endian::native == std::endian::little, "files are little-endian");

namespace garam {
namespace {

constexpr std::int64_t kAlignment = 32;  // what readers assume without general.alignment
// gguf_metadata_value_type of the specification.
constexpr std::uint32_t kU32 = 4;
constexpr std::uint32_t kI32 = 5;
constexpr std::uint32_t kF32 = 6;
constexpr std::uint32_t kBool = 7;
constexpr std::uint32_t kString = 8;
constexpr std::uint32_t kArray = 9;
constexpr std::uint32_t kU64 = 10;

class Header {
  public:
    template <typename T>
    void put(T value) {
        bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    void text(std::string_view value) {
        put<std::uint64_t>(value.size());
        bytes_ += value;
    }
    void begin_array(std::uint32_t type, std::size_t count) {
        put(kArray);
        put(type);
        put<std::uint64_t>(count);
    }
    void value(const GgufValue& value) {
        std::visit([this](const auto& held) { one(held); }, value);
    }
    std::string& bytes() { return bytes_; }

  private:
    void one(std::uint32_t v) { put(kU32), put(v); }
    void one(std::int32_t v) { put(kI32), put(v); }
    void one(std::uint64_t v) { put(kU64), put(v); }
    void one(float v) { put(kF32), put(v); }
    void one(bool v) { put(kBool), put(static_cast<std::uint8_t>(v)); }
    void one(const std::string& v) { put(kString), text(v); }
    void one(const std::vector<std::string>& list) {
        begin_array(kString, list.size());
        for (const std::string& v : list)
            text(v);
    }
    void one(const std::vector<float>& list) { numbers(kF32, list); }
    void one(const std::vector<std::int32_t>& list) { numbers(kI32, list); }
    void one(const std::vector<std::uint8_t>& list) { numbers(kBool, list); }
    template <typename T>
    void numbers(std::uint32_t type, const std::vector<T>& list) {
        begin_array(type, list.size());
        bytes_.append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(T));
    }

    std::string bytes_;
};

std::int64_t padding_of(std::int64_t bytes) {
    return (kAlignment - bytes % kAlignment) % kAlignment;
}

}  // namespace

GgufValue gguf_value(const Json& value, const std::string& key) {
    if (value.is_bool()) return value.boolean();
    if (value.is_string()) return value.string();
    if (value.is_int()) {
        const std::int64_t number = value.integer();
        if (number < std::numeric_limits<std::int32_t>::min())
            throw Error("key " + key + " is too small a number to be written");
        if (number < 0) return static_cast<std::int32_t>(number);
        if (number > std::numeric_limits<std::uint32_t>::max())
            return static_cast<std::uint64_t>(number);
        return static_cast<std::uint32_t>(number);
    }
    if (value.is_number()) return static_cast<float>(value.number());
    const Json::Array& list = value.array("key " + key);
    const std::string what = "key " + key + ": a value of its list";
    if (list.empty() || list[0].is_string()) {
        std::vector<std::string> texts;
        for (const Json& item : list)
            texts.push_back(item.string(what));
        return texts;
    }
    if (list[0].is_bool()) {
        std::vector<std::uint8_t> flags;
        for (const Json& item : list)
            flags.push_back(item.boolean(what) ? 1 : 0);
        return flags;
    }
    if (list[0].is_int()) {
        std::vector<std::int32_t> numbers;
        for (const Json& item : list) {
            const std::int64_t number = item.integer(what);
            if (number != static_cast<std::int32_t>(number))
                throw Error(what + " does not fit 32 bits");
            numbers.push_back(static_cast<std::int32_t>(number));
        }
        return numbers;
    }
    std::vector<float> numbers;
    for (const Json& item : list)
        numbers.push_back(static_cast<float>(item.number(what)));
    return numbers;
}

std::int64_t GgufWriter::Entry::bytes() const {
    return shape.elements() / block_elements(type) * static_cast<std::int64_t>(block_bytes(type));
}

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufKeys& keys,
                       std::vector<Entry> entries)
    : file_(path), entries_(std::move(entries)) {
    Header header;
    header.bytes() = "GGUF";
    header.put(std::uint32_t{3});
    header.put<std::uint64_t>(entries_.size());
    header.put<std::uint64_t>(keys.size());
    std::unordered_set<std::string_view> names;
    for (const auto& [key, value] : keys) {
        GARAM_CHECK(names.insert(key).second, "key written twice: " + key);
        header.text(key);
        header.value(value);
    }
    names.clear();
    std::int64_t offset = 0;
    for (const Entry& entry : entries_) {
        GARAM_CHECK(names.insert(entry.name).second, "tensor written twice: " + entry.name);
        GARAM_CHECK(entry.shape.back() % block_elements(entry.type) == 0,
                    "rows are no whole blocks: " + entry.name);
        header.text(entry.name);
        header.put<std::uint32_t>(static_cast<std::uint32_t>(entry.shape.rank()));
        for (int axis = entry.shape.rank(); axis > 0; --axis)
            header.put<std::uint64_t>(static_cast<std::uint64_t>(entry.shape[axis - 1]));
        header.put<std::uint32_t>(ggml_type_of(entry.type).value());
        header.put<std::uint64_t>(static_cast<std::uint64_t>(offset));
        offset += entry.bytes() + padding_of(entry.bytes());
    }
    header.bytes().append(
        static_cast<std::size_t>(padding_of(static_cast<std::int64_t>(header.bytes().size()))),
        '\0');
    file_.write(header.bytes().data(), header.bytes().size());
    total_ = static_cast<std::int64_t>(header.bytes().size()) + offset;
}

void GgufWriter::write(std::string_view name, const void* data, std::int64_t bytes) {
    GARAM_CHECK(next_ < entries_.size() && entries_[next_].name == name &&
                    in_entry_ + bytes <= entries_[next_].bytes(),
                "tensor out of order: " + std::string(name));
    file_.write(data, static_cast<std::size_t>(bytes));
    in_entry_ += bytes;
    if (in_entry_ < entries_[next_].bytes()) return;
    pad();
    ++next_;
    in_entry_ = 0;
}

void GgufWriter::pad() {
    const std::string zeros(static_cast<std::size_t>(padding_of(in_entry_)), '\0');
    file_.write(zeros.data(), zeros.size());
}

void GgufWriter::commit() {
    GARAM_CHECK(next_ == entries_.size(), "a tensor was not written");
    file_.commit();
}

}  // namespace garam
