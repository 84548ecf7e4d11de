#include "garam/io/atomic_write.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "garam/core/error.h"
#include "garam/io/interruptible_writing.h"

namespace garam {
namespace {

namespace fs = std::filesystem;

// Linux refuses more than 0x7ffff000 bytes in one write; smaller pieces cost nothing.
constexpr std::size_t kLargestWrite = std::size_t{1} << 30;

std::string reason(int error) {
    return std::generic_category().message(error);
}

[[noreturn]] void throw_unwritable(const fs::path& path, int error) {
    throw Error(path.string() + ": cannot be written: " + reason(error));
}

// A descriptor that is closed when the scope ends.
class Descriptor {
  public:
    explicit Descriptor(int fd) : fd_(fd) {}
    ~Descriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    int get() const { return fd_; }

  private:
    int fd_;
};

fs::path without_trailing_slash(const fs::path& path) {
    const fs::path clean = path.has_filename() ? path : path.parent_path();
    if (!clean.has_filename() || clean.filename() == "." || clean.filename() == "..")
        throw Error(path.string() + ": not a name that can be written");
    return clean;
}

fs::path folder_of(const fs::path& path) {
    return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

fs::path temporary_name(const fs::path& path) {
    static std::atomic<unsigned> counter{0};
    return folder_of(path) / ("." + path.filename().string() + ".tmp-" +
                              std::to_string(::getpid()) + "-" + std::to_string(counter++));
}

// Removes what killed writers of `path` left: temporaries whose lock nobody holds.
void remove_leftovers(const fs::path& path) {
    const std::string prefix = "." + path.filename().string() + ".tmp-";
    std::error_code ignored;
    std::vector<fs::path> candidates;
    for (fs::directory_iterator entry(folder_of(path), ignored), end; entry != end;
         entry.increment(ignored)) {
        if (entry->path().filename().string().starts_with(prefix))
            candidates.push_back(entry->path());
    }
    for (const fs::path& candidate : candidates) {
        const Descriptor fd(::open(candidate.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
        if (fd.get() >= 0 && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0)
            fs::remove_all(candidate, ignored);
    }
}

void sync_entry(const fs::path& path, int flags) {
    const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
    if (fd.get() < 0) throw_unwritable(path, errno);
    // Some file systems cannot sync a folder and say EINVAL: nothing more can be done there.
    if (::fsync(fd.get()) != 0 && errno != EINVAL) throw_unwritable(path, errno);
}

void sync_folder(const fs::path& folder) {
    sync_entry(folder, O_DIRECTORY);
}

void sync_tree(const fs::path& folder) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
        if (entry.is_symlink()) continue;
        if (entry.is_directory()) {
            sync_tree(entry.path());
        } else if (entry.is_regular_file()) {
            sync_entry(entry.path(), 0);
        }
    }
    sync_folder(folder);
}

fs::path set_aside_name(const fs::path& path) {
    return folder_of(path) / ("." + path.filename().string() + ".old");
}

// After a kill between the two renames of a file system without exchange.
void restore_set_aside(const fs::path& path) {
    const fs::path old = set_aside_name(path);
    std::error_code error;
    if (!fs::exists(fs::symlink_status(old, error))) return;
    if (fs::exists(fs::symlink_status(path, error))) {
        fs::remove_all(old, error);
    } else {
        fs::rename(old, path, error);
    }
}

void move_into_place(const fs::path& temporary, const fs::path& path) {
    std::error_code error_code;
    if (!fs::exists(fs::symlink_status(path, error_code))) {
        if (::rename(temporary.c_str(), path.c_str()) != 0) throw_unwritable(path, errno);
        return;
    }
    if (!fs::is_directory(path, error_code))
        throw Error(path.string() + ": is in the way and is no folder");
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0)
        return;
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) throw_unwritable(path, errno);
    const fs::path old = set_aside_name(path);
    if (::rename(path.c_str(), old.c_str()) != 0) throw_unwritable(path, errno);
    if (::rename(temporary.c_str(), path.c_str()) != 0) {
        const int error = errno;
        ::rename(old.c_str(), path.c_str());
        throw_unwritable(path, error);
    }
    fs::remove_all(old, error_code);
}

void move_to_new_name(const fs::path& temporary, const fs::path& path) {
    const auto refuse = [&] {
        throw Error(path.string() + " exists already: name a folder that does not");
    };
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0)
        return;
    if (errno == EEXIST) refuse();
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) throw_unwritable(path, errno);
    std::error_code ignored;
    if (fs::exists(fs::symlink_status(path, ignored))) refuse();
    if (::rename(temporary.c_str(), path.c_str()) != 0) throw_unwritable(path, errno);
}

// The temporary folder of one write, locked, and removed at the end: after an exchange it is the
// old one.
class TemporaryFolder {
  public:
    explicit TemporaryFolder(const fs::path& target) : path_(temporary_name(target)) {
        if (::mkdir(path_.c_str(), 0777) != 0) throw_unwritable(target, errno);
        fd_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd_ >= 0) ::flock(fd_, LOCK_EX | LOCK_NB);
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
        if (fd_ >= 0) ::close(fd_);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    const fs::path& path() const { return path_; }

  private:
    fs::path path_;
    int fd_ = -1;
};

}  // namespace

AtomicFile::AtomicFile(const fs::path& path) : path_(without_trailing_slash(path)) {
    remove_leftovers(path_);
    std::error_code ignored;
    if (fs::is_directory(path_, ignored)) throw_unwritable(path_, EISDIR);
    do {  // a name may be taken by a leftover of another process of the same number
        temporary_ = temporary_name(path_);
        fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (fd_ < 0 && errno == EEXIST);
    if (fd_ < 0) throw_unwritable(path_, errno);
    ::flock(fd_, LOCK_EX | LOCK_NB);
}

AtomicFile::~AtomicFile() {
    if (fd_ < 0) return;
    ::unlink(temporary_.c_str());
    ::close(fd_);
}

void AtomicFile::fail(int error) const {
    throw_unwritable(path_, error);
}

void AtomicFile::write(const void* data, std::size_t bytes) {
    GARAM_CHECK(fd_ >= 0, path_.string() + " was already committed");
    throw_if_interrupted();
    const char* next = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t written = ::write(fd_, next, std::min(bytes, kLargestWrite));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) fail(errno);
        next += written;
        bytes -= static_cast<std::size_t>(written);
    }
}

void AtomicFile::commit() {
    GARAM_CHECK(fd_ >= 0, path_.string() + " was already committed");
    if (::fsync(fd_) != 0) fail(errno);
    throw_if_interrupted();
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
    const int closed = ::close(std::exchange(fd_, -1));
    if (closed != 0 && errno != EINTR) fail(errno);
    sync_folder(folder_of(path_));
}

void write_file_atomically(const fs::path& path, std::string_view content) {
    AtomicFile file(path);
    file.write(content.data(), content.size());
    file.commit();
}

namespace {

void write_folder(const fs::path& target, const std::function<void(const fs::path&)>& fill,
                  void (*move)(const fs::path& temporary, const fs::path& path)) {
    remove_leftovers(target);
    const TemporaryFolder temporary(target);
    fill(temporary.path());
    try {
        sync_tree(temporary.path());
    } catch (const fs::filesystem_error& error) {
        throw Error(target.string() + ": cannot be written: " + error.code().message());
    }
    throw_if_interrupted();
    move(temporary.path(), target);
    sync_folder(folder_of(target));
}

}  // namespace

void write_folder_atomically(const fs::path& path,
                             const std::function<void(const fs::path&)>& fill) {
    const fs::path target = without_trailing_slash(path);
    restore_set_aside(target);
    write_folder(target, fill, move_into_place);
}

void write_new_folder_atomically(const fs::path& path,
                                 const std::function<void(const fs::path&)>& fill) {
    write_folder(without_trailing_slash(path), fill, move_to_new_name);
}

}  // namespace garam
