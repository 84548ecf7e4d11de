// A whole file mapped into memory, read only; pages are read when they are touched.
//
// An empty file has size 0 and no address. Whoever shortens the file while it is mapped makes later
// reads fail (the kernel's SIGBUS): files of models are not written in place.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace garam {

class MappedFile {
  public:
    // Throws Error naming the file and the reason (absent, a folder, no permission).
    explicit MappedFile(const std::filesystem::path& path);
    ~MappedFile();
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    const std::filesystem::path& path() const { return path_; }
    const std::byte* data() const { return data_; }
    std::size_t size() const { return size_; }
    std::span<const std::byte> bytes() const { return {data_, size_}; }

  private:
    std::filesystem::path path_;
    const std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace garam
