// A table's file mapped for Arrow to read.
#pragma once

#include <cstddef>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "garam/io/mapped_file.h"

namespace arrow {
class MemoryPool;
class Status;
namespace io {
class RandomAccessFile;
}
}  // namespace arrow

namespace garam {

class TableFile {
  public:
    // Throws Error as MappedFile does, and for an empty file.
    explicit TableFile(const std::filesystem::path& path);

    const std::string& name() const { return name_; }
    std::size_t size() const;
    std::string_view head(std::size_t size) const;
    std::string_view tail(std::size_t size) const;
    // Without copies: what is read from it are pieces of the mapping, which they keep alive.
    std::shared_ptr<arrow::io::RandomAccessFile> stream() const;
    // What it is unpacked into.
    arrow::MemoryPool* memory() const;
    // Tells that so many bytes were used. Now and then the pages read so far are given back, so that a file
    // larger than memory does not fill it; they are read again if they are touched.
    void used(std::size_t bytes);

    // Throws Error naming the file.
    [[noreturn]] void fail(const arrow::Status& status) const;
    [[noreturn]] void fail(const std::exception& error) const;
    void check(const arrow::Status& status) const;
    template <typename Result>
    auto take(Result&& result) const {
        check(result.status());
        return std::forward<Result>(result).MoveValueUnsafe();
    }

  private:
    std::string name_;
    std::shared_ptr<const MappedFile> file_;
    std::size_t used_ = 0;
};

}  // namespace garam
