// Folders of data sets that say themselves what they hold: those that `datasets` writes with save_to_disk, and the
// Hub's local cache.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "garam/data/sources/data_files.h"

namespace garam {

// A Dataset (state.json), a DatasetDict (dataset_dict.json), or folders of Datasets side by side. Empty where it
// is none of these. Throws Error naming the file that is missing or wrong.
std::optional<DataPlace> find_saved_data_set(const std::string& name,
                                             const std::filesystem::path& folder);

// The snapshot of "org/name" in the cache. Throws Error with the command that downloads it.
std::filesystem::path find_hub_data_set(const std::string& name);

}  // namespace garam
