#include "garam/data/samples/spill_file.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

namespace garam {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBuffer = std::size_t{1} << 20;

std::string megabytes(std::uint64_t bytes) {
    return std::to_string(bytes / 1000000) + " MB";
}

int open_unnamed(const fs::path& folder) {
    const int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
    // Of a file system that cannot: a name for a moment.
    std::string name = (folder / ".garam-XXXXXX").string();
    const int named = ::mkostemp(name.data(), O_CLOEXEC);
    if (named >= 0) ::unlink(name.c_str());
    return named;
}

}  // namespace

OpenFile::OpenFile(const fs::path& path) {
    // O_NONBLOCK: opening a named pipe would otherwise wait for a writer.
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd_ < 0)
        throw Error(path.string() + ": cannot be read: " + std::generic_category().message(errno));
}

OpenFile::~OpenFile() {
    ::close(fd_);
}

SpillFile::SpillFile(fs::path path, bool has_name, int fd)
    : path_(std::move(path)), has_name_(has_name), fd_(fd) {
    if (fd_ < 0) fail(errno);
    buffer_.reserve(kBuffer);
}

SpillFile SpillFile::named(const fs::path& path) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return {path, true, fd};
}

SpillFile SpillFile::unnamed(fs::path folder) {
    if (folder.empty()) {
        std::error_code error;
        folder = fs::temp_directory_path(error);
        if (error) folder = "/tmp";
    }
    const int fd = open_unnamed(folder);
    return {std::move(folder), false, fd};
}

SpillFile::~SpillFile() {
    if (fd_ < 0) return;
    if (has_name_ && !keep_) ::unlink(path_.c_str());
    ::close(fd_);
}

SpillFile::SpillFile(SpillFile&& other) noexcept
    : path_(std::move(other.path_)),
      has_name_(other.has_name_),
      keep_(other.keep_),
      fd_(std::exchange(other.fd_, -1)),
      written_(other.written_),
      buffer_(std::move(other.buffer_)) {}

void SpillFile::fail(int error) const {
    std::string message = path_.string() + (has_name_ ? "" : ": the samples' temporary file") +
                          ": cannot be written: " + std::generic_category().message(error);
    if (fd_ >= 0) {
        message += ", after " + megabytes(static_cast<std::uint64_t>(written_));
        struct statvfs room {};
        if (::fstatvfs(fd_, &room) == 0)
            message +=
                " (" + megabytes(std::uint64_t{room.f_bavail} * room.f_frsize) + " are free there)";
    }
    throw WriteError(message + (has_name_
                                    ? "; set data.cache_dir to a folder with more room"
                                    : "; set data.cache_dir, or TMPDIR, to a folder with more "
                                      "room"));
}

void SpillFile::write(const void* data, std::size_t bytes, std::int64_t at) {
    const char* next = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t written = ::pwrite(fd_, next, bytes, at);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) fail(errno);
        next += written;
        at += written;
        bytes -= static_cast<std::size_t>(written);
    }
}

void SpillFile::flush() {
    write(buffer_.data(), buffer_.size(), written_);
    written_ += static_cast<std::int64_t>(buffer_.size());
    buffer_.clear();
}

void SpillFile::append(const void* data, std::size_t bytes) {
    const auto* next = static_cast<const std::byte*>(data);
    while (bytes > 0) {
        const std::size_t piece = std::min(bytes, kBuffer - buffer_.size());
        buffer_.insert(buffer_.end(), next, next + piece);
        next += piece;
        bytes -= piece;
        if (buffer_.size() == kBuffer) flush();
    }
}

void SpillFile::append(SpillFile& other) {
    other.flush();
    std::vector<std::byte> piece(kBuffer);
    for (std::int64_t at = 0; at < other.written_;) {
        const ssize_t got = ::pread(other.fd_, piece.data(), piece.size(), at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) other.fail(got < 0 ? errno : EIO);
        append(piece.data(), static_cast<std::size_t>(got));
        at += got;
    }
}

void SpillFile::overwrite(std::int64_t at, const void* data, std::size_t bytes) {
    flush();
    write(data, bytes, at);
}

void SpillFile::sync() {
    flush();
    if (has_name_ && ::fsync(fd_) != 0) fail(errno);
}

}  // namespace garam
