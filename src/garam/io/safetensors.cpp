#include "garam/io/safetensors.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <unordered_map>

#include "garam/core/error.h"
#include "garam/core/json.h"
#include "garam/io/mapped_file.h"
#include "garam/io/safetensors_writer.h"

namespace garam {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kLargestHeader = 100'000'000;
constexpr std::string_view kMetadataKey = "__metadata__";
constexpr std::string_view kSupportedTypes = "F32, F16, BF16, I64, I32, U8";

struct TypeName {
    std::string_view name;
    StoredType stored;
};
constexpr std::array<TypeName, 6> kTypes = {{{"F32", StoredType::f32},
                                             {"F16", StoredType::f16},
                                             {"BF16", StoredType::bf16},
                                             {"I64", StoredType::i64},
                                             {"I32", StoredType::i32},
                                             {"U8", StoredType::u8}}};

// Members of all objects of valid JSON text, repeated names counted each time (Json keeps only the
// last of them): the colons outside strings.
std::int64_t members_written(std::string_view text) {
    std::int64_t colons = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (in_string && text[i] == '\\') {
            ++i;  // what is escaped ends no string
        } else if (text[i] == '"') {
            in_string = !in_string;
        } else if (!in_string) {
            colons += text[i] == ':';
        }
    }
    return colons;
}

std::int64_t members_in(const Json& value) {
    std::int64_t count = 0;
    if (value.is_object()) {
        for (const auto& [key, member] : value.object())
            count += 1 + members_in(member);
    } else if (value.is_array()) {
        for (const Json& item : value.array())
            count += members_in(item);
    }
    return count;
}

class MappedSafetensors : public SafetensorsFile {
  public:
    explicit MappedSafetensors(const std::filesystem::path& path) : file_(path) {
        const std::string_view text = header_text();
        const Json header = Json::parse(text, file_.path().string() + " (header)");
        if (!header.is_object()) fail("the header is no JSON object");
        if (members_in(header) != members_written(text))
            fail("the header names a tensor or one of its fields twice");
        const std::size_t data_begin = kLengthBytes + text.size();
        const std::size_t data_size = file_.size() - data_begin;
        for (const auto& [name, entry] : header.object()) {
            if (name == kMetadataKey) {
                read_metadata(entry);
            } else {
                read_entry(name, entry, file_.data() + data_begin, data_size);
            }
        }
        check_layout(file_.data() + data_begin, data_size);
        for (std::size_t i = 0; i < tensors_.size(); ++i)
            index_.emplace(tensors_[i].name, i);
    }

    const std::filesystem::path& path() const override { return file_.path(); }
    const std::vector<StoredTensor>& tensors() const override { return tensors_; }
    const StoredTensor* find(std::string_view name) const override {
        const auto found = index_.find(name);
        return found == index_.end() ? nullptr : &tensors_[found->second];
    }
    const std::vector<std::pair<std::string, std::string>>& metadata() const override {
        return metadata_;
    }

  private:
    [[noreturn]] void fail(const std::string& what) const {
        throw Error(file_.path().string() + ": not a valid safetensors file: " + what);
    }
    [[noreturn]] void fail(const std::string& tensor, const std::string& what) const {
        fail("tensor " + tensor + ": " + what);
    }

    std::string_view header_text() const {
        if (file_.size() < kLengthBytes)
            fail("it has " + std::to_string(file_.size()) + " bytes, fewer than its header length");
        std::uint64_t length = 0;
        std::memcpy(&length, file_.data(), kLengthBytes);
        if (length > kLargestHeader)
            fail("its header claims " + std::to_string(length) + " bytes, more than 100 MB");
        if (length > file_.size() - kLengthBytes)
            fail("its header claims " + std::to_string(length) + " bytes, the file has " +
                 std::to_string(file_.size()) + "; perhaps its download is incomplete");
        const std::string_view text(reinterpret_cast<const char*>(file_.data()) + kLengthBytes,
                                    static_cast<std::size_t>(length));
        if (!text.starts_with('{')) fail("the header does not begin with {");
        return text;
    }

    void read_metadata(const Json& entry) {
        if (!entry.is_object()) fail("__metadata__ is no object");
        for (const auto& [key, value] : entry.object()) {
            if (!value.is_string()) fail("__metadata__: \"" + key + "\" is no string");
            metadata_.emplace_back(key, value.string());
        }
    }

    // A whole number, not negative; offsets and extents.
    std::int64_t size_in(const Json& value, const std::string& tensor, const char* what) const {
        if (!value.is_int() || value.integer() < 0)
            fail(tensor, std::string(what) + " must be whole numbers, not negative");
        return value.integer();
    }

    const Json& field(const Json& entry, const std::string& tensor, const char* key) const {
        const Json* found = entry.find(key);
        if (found == nullptr) fail(tensor, "\"" + std::string(key) + "\" is missing");
        return *found;
    }

    void read_entry(const std::string& name, const Json& entry, const std::byte* data,
                    std::size_t data_size) {
        if (!entry.is_object()) fail(name, "its entry is no object");
        StoredTensor tensor;
        tensor.name = name;

        const Json& dtype = field(entry, name, "dtype");
        if (!dtype.is_string()) fail(name, "dtype is no string");
        const auto* known = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeName& type) {
            return type.name == dtype.string();
        });
        if (known == kTypes.end())
            throw Error(file_.path().string() + ": tensor " + name + " has dtype " +
                        dtype.string() + ", which is not supported; supported are " +
                        std::string(kSupportedTypes));
        tensor.type = known->stored;

        const Json& shape = field(entry, name, "shape");
        if (!shape.is_array()) fail(name, "shape is no array");
        if (shape.array().size() > Shape::kMaxRank)
            throw Error(file_.path().string() + ": tensor " + name + " has " +
                        std::to_string(shape.array().size()) +
                        " dimensions; at most 4 are supported");
        std::int64_t elements = 1;
        bool overflow = false;
        for (const Json& extent : shape.array()) {
            tensor.shape.append(size_in(extent, name, "shape"));
            overflow |= __builtin_mul_overflow(elements, extent.integer(), &elements);
        }

        const Json& offsets = field(entry, name, "data_offsets");
        if (!offsets.is_array() || offsets.array().size() != 2)
            fail(name, "data_offsets are not two numbers");
        const std::int64_t begin = size_in(offsets.array()[0], name, "data_offsets");
        const std::int64_t end = size_in(offsets.array()[1], name, "data_offsets");
        if (begin > end) fail(name, "data_offsets end before they begin");
        if (static_cast<std::uint64_t>(end) > data_size)
            fail(name, "ends at byte " + std::to_string(end) + " of the data, which has " +
                           std::to_string(data_size) +
                           "; perhaps the file's download is incomplete");
        std::int64_t bytes = 0;
        overflow |= __builtin_mul_overflow(
            elements, static_cast<std::int64_t>(block_bytes(tensor.type)), &bytes);
        if (overflow || bytes != end - begin)
            fail(name, "shape " + tensor.shape.to_string() + " of " + dtype.string() +
                           " does not agree with its " + std::to_string(end - begin) + " bytes");
        tensor.data = data + begin;
        tensor.bytes = static_cast<std::size_t>(bytes);
        tensors_.push_back(std::move(tensor));
    }

    // Sorts by offset and checks that the tensors cover the data without overlap or hole.
    void check_layout(const std::byte* data, std::size_t data_size) {
        std::stable_sort(tensors_.begin(), tensors_.end(),
                         [](const StoredTensor& a, const StoredTensor& b) {
                             return a.data != b.data ? a.data < b.data : a.bytes < b.bytes;
                         });
        const std::byte* next = data;
        for (const StoredTensor& tensor : tensors_) {
            if (tensor.data < next) fail(tensor.name, "overlaps the tensor before it");
            if (tensor.data > next)
                fail(tensor.name, "does not begin where the one before it ends");
            next = tensor.data + tensor.bytes;
        }
        const std::size_t left = static_cast<std::size_t>(data + data_size - next);
        if (left != 0) fail(std::to_string(left) + " bytes behind the last tensor belong to none");
    }

    MappedFile file_;
    std::vector<StoredTensor> tensors_;
    std::vector<std::pair<std::string, std::string>> metadata_;
    std::unordered_map<std::string_view, std::size_t> index_;  // views of the tensors' names
};

}  // namespace

std::shared_ptr<const SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
    return std::make_shared<const MappedSafetensors>(path);
}

void write_safetensors(const std::filesystem::path& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::vector<std::pair<std::string, std::string>>& metadata) {
    std::vector<SafetensorsWriter::Entry> entries;
    for (const auto& [name, tensor] : tensors) {
        GARAM_CHECK(tensor.device() == DeviceKind::cpu && tensor.is_dense(),
                    name + " must be a dense host tensor");
        entries.push_back({name, tensor.dtype(), tensor.shape()});
    }
    SafetensorsWriter writer(path, std::move(entries), metadata);
    for (const auto& [name, tensor] : tensors)
        writer.write(name, tensor.raw(), tensor.bytes());
    writer.commit();
}

}  // namespace garam
