#include "garam/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "garam/core/error.h"

namespace garam {
namespace {

[[noreturn]] void throw_unreadable(const std::filesystem::path& path, int error) {
    throw Error(path.string() + ": cannot be read: " + std::generic_category().message(error));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
    // O_NONBLOCK: opening a named pipe would otherwise wait for a writer.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) throw_unreadable(path, errno);
    struct stat status {};
    int error = ::fstat(fd, &status) != 0 ? errno : 0;
    if (error == 0 && S_ISDIR(status.st_mode)) error = EISDIR;
    if (error == 0 && !S_ISREG(status.st_mode)) error = EINVAL;
    if (error == 0 && status.st_size > 0) {
        size_ = static_cast<std::size_t>(status.st_size);
        void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
        if (address == MAP_FAILED) {
            error = errno;
        } else {
            data_ = static_cast<const std::byte*>(address);
        }
    }
    ::close(fd);
    if (error != 0) throw_unreadable(path, error);
}

MappedFile::~MappedFile() {
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace garam
