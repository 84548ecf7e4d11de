// The bytes of a file in their order, unpacked where it is a gzip or Zstandard file.
//
// What a file is its first bytes tell, not its name; a name that ends in .gz or .zst must tell the truth. Files of
// several members or frames are read through. Memory is bounded: 128 MiB at most for a Zstandard window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

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

// Bytes of the byte order mark that UTF-8 begins with: 3, or 0 where there is none. Throws Error "<name>: ..." for
// UTF-16's. `head`: the first three bytes, or all where there are fewer.
std::size_t byte_order_mark(std::string_view head, const std::string& name);

// "rows.csv" of "rows.csv.gz".
std::filesystem::path without_packing(const std::filesystem::path& path);

}  // namespace garam
