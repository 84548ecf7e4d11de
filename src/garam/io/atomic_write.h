// Files and folders that are there whole or not at all, whatever happens meanwhile (a kill, a full
// disk, a power loss): written under a temporary name in the same folder, synced, then renamed.
//
// Temporary names are ".<name>.tmp-<pid>-<n>". Whoever writes holds a lock (flock) on the temporary
// file or folder; those without a living writer were left by a kill and are removed by the next
// write to that name.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string_view>

namespace garam {

// Throws Error naming the file and the reason ("No space left on device"); an old file of that name
// then stays as it was and the temporary one is removed.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// The same for content that comes piece by piece. Without commit() nothing remains.
class AtomicFile {
  public:
    explicit AtomicFile(const std::filesystem::path& path);
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    // Both throw WritingInterrupted too (interruptible_writing.h).
    void write(const void* data, std::size_t bytes);
    void commit();

  private:
    [[noreturn]] void fail(int error) const;

    std::filesystem::path path_;
    std::filesystem::path temporary_;
    int fd_ = -1;
};

// Calls `fill` with a temporary folder beside `path`; when it returns, syncs every file in it and
// renames the folder to `path`, replacing an old one. When it throws, or a signal came meanwhile (WritingInterrupted),
// the temporary folder is removed.
//
// An old folder is exchanged with the new one in one step where the file system can (Linux's local
// ones); elsewhere it is moved to ".<name>.old" for a moment, and the next write puts it back if a
// kill fell into that moment.
void write_folder_atomically(const std::filesystem::path& path,
                             const std::function<void(const std::filesystem::path&)>& fill);

// The same for a name that nobody has: what came to be there in the meantime stays as it is, and the new folder is
// removed. Throws Error naming it.
void write_new_folder_atomically(const std::filesystem::path& path,
                                 const std::function<void(const std::filesystem::path&)>& fill);

}  // namespace garam
