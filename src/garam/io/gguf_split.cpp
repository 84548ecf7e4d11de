#include "garam/io/gguf_split.h"

#include <cstdio>
#include <unordered_map>

#include "garam/core/error.h"

namespace garam {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostParts = 65535;  // the keys are of 16 bits

struct Place {
    std::int64_t number = 0;
    std::int64_t count = 1;
};

std::int64_t integer_of(const GgufFile& file, const char* key, std::int64_t otherwise) {
    const Json* value = file.find(key);
    return value == nullptr ? otherwise
                            : value->integer(file.path().string() + ": key " + std::string(key));
}

Place place_of(const GgufFile& file) {
    const Place place{integer_of(file, "split.no", 0), integer_of(file, "split.count", 1)};
    if (place.count < 0 || place.count > kMostParts)
        throw Error(file.path().string() + ": key split.count is " + std::to_string(place.count) +
                    ", not between 1 and " + std::to_string(kMostParts));
    if (place.count > 1 && (place.number < 0 || place.number >= place.count))
        throw Error(file.path().string() + ": key split.no is " + std::to_string(place.number) +
                    " of " + std::to_string(place.count) + " parts");
    return place;
}

std::string ending_of(Place place) {
    char text[64];
    std::snprintf(text, sizeof text, "-%05lld-of-%05lld.gguf",
                  static_cast<long long>(place.number + 1), static_cast<long long>(place.count));
    return text;
}

class JoinedGguf : public GgufFile {
  public:
    JoinedGguf(fs::path path, std::vector<std::shared_ptr<const GgufFile>> parts)
        : path_(std::move(path)), parts_(std::move(parts)) {
        std::unordered_map<std::string_view, const GgufFile*> owner;
        for (const auto& part : parts_) {
            for (const StoredTensor& tensor : part->tensors()) {
                const auto [other, is_new] = owner.emplace(tensor.name, part.get());
                if (!is_new)
                    throw Error(part->path().string() + ": tensor " + tensor.name + " is in " +
                                other->second->path().filename().string() + " too");
                tensors_.push_back(tensor);
            }
        }
        const auto held = static_cast<std::int64_t>(tensors_.size());
        const std::int64_t told = integer_of(*parts_[0], "split.tensors.count", held);
        if (told != held)
            throw Error(parts_[0]->path().string() + ": key split.tensors.count is " +
                        std::to_string(told) + ", but its " + std::to_string(parts_.size()) +
                        " parts hold " + std::to_string(held) + " tensors");
    }

    const fs::path& path() const override { return path_; }
    const Json* find(std::string_view key) const override { return parts_[0]->find(key); }
    const Json::Object& keys() const override { return parts_[0]->keys(); }
    const std::vector<StoredTensor>& tensors() const override { return tensors_; }

  private:
    fs::path path_;
    std::vector<std::shared_ptr<const GgufFile>> parts_;
    std::vector<StoredTensor> tensors_;
};

// Names all that are missing, the first few by name.
void require_parts(const fs::path& given, const std::vector<fs::path>& files) {
    constexpr std::size_t kNamed = 4;
    std::vector<std::string> missing;
    for (const fs::path& file : files) {
        std::error_code ignored;
        if (!fs::exists(file, ignored)) missing.push_back(file.filename().string());
    }
    if (missing.empty()) return;
    std::string names;
    for (std::size_t i = 0; i < missing.size() && i < kNamed; ++i)
        names += (i == 0 ? "" : ", ") + missing[i];
    if (missing.size() > kNamed)
        names += " and " + std::to_string(missing.size() - kNamed) + " more";
    throw Error(given.string() + ": is one of " + std::to_string(files.size()) +
                " parts; missing beside it: " + names);
}

}  // namespace

std::shared_ptr<const GgufFile> join_gguf_parts(
    std::shared_ptr<const GgufFile> part,
    const std::function<std::shared_ptr<const GgufFile>(const fs::path&)>& open) {
    const Place given = place_of(*part);
    if (given.count <= 1) return part;
    const fs::path path = part->path();
    const std::string name = path.filename().string();
    const std::string ending = ending_of(given);
    if (!name.ends_with(ending))
        throw Error(path.string() + ": its keys say that it is part " +
                    std::to_string(given.number + 1) + " of " + std::to_string(given.count) +
                    ", so its name must end in " + ending);
    const std::string stem = name.substr(0, name.size() - ending.size());
    std::vector<fs::path> files;
    for (std::int64_t number = 0; number < given.count; ++number)
        files.push_back(path.parent_path() / (stem + ending_of({number, given.count})));
    require_parts(path, files);

    std::vector<std::shared_ptr<const GgufFile>> parts;
    for (std::int64_t number = 0; number < given.count; ++number) {
        parts.push_back(number == given.number ? part
                                               : open(files[static_cast<std::size_t>(number)]));
        const Place place = place_of(*parts.back());
        if (place.number != number || place.count != given.count)
            throw Error(parts.back()->path().string() + ": its keys say part " +
                        std::to_string(place.number + 1) + " of " + std::to_string(place.count) +
                        ", its name part " + std::to_string(number + 1) + " of " +
                        std::to_string(given.count));
    }
    return std::make_shared<const JoinedGguf>(path, std::move(parts));
}

}  // namespace garam
