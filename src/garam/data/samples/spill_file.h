// Files of data that is too much for memory: written once from front to back through a buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "garam/core/error.h"

namespace garam {

// A file opened for reading. Throws Error naming it and the reason.
class OpenFile {
  public:
    explicit OpenFile(const std::filesystem::path& path);
    ~OpenFile();
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;
    int fd() const { return fd_; }

  private:
    int fd_ = -1;
};

// The disk does not take what is written.
class WriteError : public Error {
  public:
    using Error::Error;
};

// Every member throws WriteError naming file, size, free room and the key data.cache_dir when the disk is full
// or fails.
class SpillFile {
  public:
    // Replaces a file of that name; removed at the end unless kept.
    static SpillFile named(const std::filesystem::path& path);
    // Has no name, so that it is gone with its last user, however that one ends. Empty: the system's
    // temporary folder.
    static SpillFile unnamed(std::filesystem::path folder = {});
    ~SpillFile();
    SpillFile(SpillFile&& other) noexcept;
    SpillFile(const SpillFile&) = delete;
    SpillFile& operator=(const SpillFile&) = delete;

    void append(const void* data, std::size_t bytes);
    void append(SpillFile& other);  // all of its content
    void overwrite(std::int64_t at, const void* data, std::size_t bytes);
    // Named: on disk when this returns. Unnamed: written, as nobody finds it after a power loss.
    void sync();
    void keep() { keep_ = true; }

    int fd() const { return fd_; }
    // Of an unnamed file: its folder.
    const std::filesystem::path& path() const { return path_; }

  private:
    SpillFile(std::filesystem::path path, bool has_name, int fd);
    void flush();
    void write(const void* data, std::size_t bytes, std::int64_t at);
    [[noreturn]] void fail(int error) const;

    std::filesystem::path path_;
    bool has_name_ = false;
    bool keep_ = false;
    int fd_ = -1;
    std::int64_t written_ = 0;
    std::vector<std::byte> buffer_;
};

}  // namespace garam
