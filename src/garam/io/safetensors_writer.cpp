#include "garam/io/safetensors_writer.h"

#include <bit>
#include <unordered_set>

#include "garam/core/error.h"
#include "garam/core/json.h"

namespace garam {
namespace {

// Data begins at a multiple of this, as in the reference's files.
constexpr std::size_t kAlignedTo = 8;
constexpr std::string_view kMetadataKey = "__metadata__";
// What readers, the reference and ours, accept.
constexpr std::size_t kLargestHeader = 100'000'000;

std::string_view file_name_of(DType dtype) {
    switch (dtype) {
        case DType::f32:
            return "F32";
        case DType::f16:
            return "F16";
        case DType::bf16:
            return "BF16";
        case DType::u8:
            return "U8";
        case DType::i32:
            return "I32";
        case DType::i64:
            return "I64";
    }
    return "?";
}

std::string header_text(const std::vector<SafetensorsWriter::Entry>& entries,
                        const std::vector<std::pair<std::string, std::string>>& metadata) {
    Json::Object header;
    if (!metadata.empty()) {
        Json::Object values;
        for (const auto& [key, value] : metadata)
            values.emplace_back(key, Json(value));
        header.emplace_back(std::string(kMetadataKey), Json(std::move(values)));
    }
    std::unordered_set<std::string_view> names;
    std::int64_t offset = 0;
    for (const SafetensorsWriter::Entry& entry : entries) {
        GARAM_CHECK(entry.name != kMetadataKey && names.insert(entry.name).second,
                    "tensor name used twice: " + entry.name);
        Json::Array extents;
        for (int axis = 0; axis < entry.shape.rank(); ++axis)
            extents.emplace_back(entry.shape[axis]);
        const std::int64_t end = offset + entry.bytes();
        header.emplace_back(entry.name,
                            Json(Json::Object{{"dtype", Json(file_name_of(entry.dtype))},
                                              {"shape", Json(std::move(extents))},
                                              {"data_offsets", Json(Json::Array{offset, end})}}));
        offset = end;
    }
    std::string text = Json(std::move(header)).dump();
    text.append((kAlignedTo - text.size() % kAlignedTo) % kAlignedTo, ' ');
    return text;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(
    const std::filesystem::path& path, std::vector<Entry> entries,
    const std::vector<std::pair<std::string, std::string>>& metadata)
    : file_(path), entries_(std::move(entries)) {
    static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");
    const std::string text = header_text(entries_, metadata);
    if (text.size() > kLargestHeader)
        throw Error(path.string() + ": cannot be written: too many tensors for one file");
    const std::uint64_t length = text.size();
    file_.write(&length, sizeof(length));
    file_.write(text.data(), text.size());
}

void SafetensorsWriter::write(std::string_view name, const void* data, std::int64_t bytes) {
    GARAM_CHECK(
        next_ < entries_.size() && entries_[next_].name == name && entries_[next_].bytes() == bytes,
        "tensor out of order: " + std::string(name));
    file_.write(data, static_cast<std::size_t>(bytes));
    ++next_;
}

void SafetensorsWriter::commit() {
    GARAM_CHECK(next_ == entries_.size(), "a tensor was not written");
    file_.commit();
}

}  // namespace garam
