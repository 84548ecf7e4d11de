// The bytes of a file in their order, unpacked where it is a gzip or Zstandard file.
//
// What a file is its first bytes tell, not its name; a name that ends in .gz or .zst must tell the truth. Files of
// several members or frames are read through. Memory is bounded: 128 MiB at most for a Zstandard window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

namespace garam {

class ByteSource {
  public:
    virtual ~ByteSource() = default;
    // Up to `size` bytes, at least one; 0 at the end. Throws Error naming the file when it cannot be read, is
    // truncated or corrupt.
    virtual std::size_t read(char* out, std::size_t size) = 0;
};

// Throws Error naming the file when there is none, or it is no regular file.
std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& path);

// source.read(); an Error tells on which line of the unpacked text the reader was.
std::size_t read_bytes(ByteSource& source, char* out, std::size_t size, std::int64_t line);

// "rows.csv" of "rows.csv.gz".
std::filesystem::path without_packing(const std::filesystem::path& path);

}  // namespace garam
