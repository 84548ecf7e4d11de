// Files and folders that are there whole or not at all, whatever happens meanwhile (a kill, a full disk,
// a power loss): written under a temporary name in the same folder, synced, then renamed.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace garam {

// Throws Error naming the file and the reason ("No space left on device"); an old file of that name then
// stays as it was and the temporary one is removed.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Calls `fill` with a temporary folder beside `path`; when it returns, syncs every file in it and renames
// the folder to `path`, replacing an old one. When it throws, the temporary folder is removed. Temporary
// folders that an earlier kill left (".<name>.tmp-*") are removed first.
void write_folder_atomically(const std::filesystem::path& path,
                             const std::function<void(const std::filesystem::path&)>& fill);

}  // namespace garam
