// Names of the Hugging Face hub ("org/name", "org/name@revision") as folders of its local cache:
//
//   <cache>/models--org--name/refs/<revision>       a file with the name of a commit
//   <cache>/models--org--name/snapshots/<commit>/   the files, mostly links into blobs/
//
// Data sets lie beside them as datasets--org--name.
// The cache is only read. Nothing is ever downloaded.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace garam {

struct HubName {
    std::string repository;  // "org/name"
    std::string revision;    // branch, tag or commit; empty: main
};
// Empty where `text` cannot be such a name.
std::optional<HubName> parse_hub_name(std::string_view text);

// HF_HUB_CACHE, else hub/ in HF_HOME, else in huggingface/ of XDG_CACHE_HOME or ~/.cache.
std::filesystem::path hub_cache_folder();

struct FoundFiles {
    std::filesystem::path path;
    std::string repository;  // empty where `path` is as it was given
};
// What a user means by the path of a model or adapter: the path itself where it exists or cannot be a
// hub name, else that repository's snapshot in the cache. Throws Error with the command that downloads
// it when the cache does not hold it.
FoundFiles find_model_path(const std::filesystem::path& given);

enum class HubKind { model, data_set };
// The snapshot of a name that parse_hub_name() takes. Throws Error with the command that downloads it when the
// cache does not hold it.
std::filesystem::path find_hub_snapshot(const std::string& given, HubKind kind);

}  // namespace garam
