// What Arrow takes memory from: no more than live buffers need and a little, however much is read.
//
// General allocators keep what each thread freed for that thread. Columns are decoded by threads in turns, so
// that every thread ends up keeping the most it ever held: several times what lives at once, and more the
// longer a file is.
#pragma once

#include <cstddef>
#include <cstdint>

namespace arrow {
class MemoryPool;
}

namespace garam {

// Buffers of 64 KiB and more are mapped one by one, and serve any thread when they are freed. At most this much
// is mapped beyond what is in use.
constexpr std::int64_t kKeptTableBytes = std::int64_t{16} << 20;

// For what a file of `file_bytes` unpacks to at one time. Sizes in files are hostile: it refuses to grow beyond a
// bound, 256 MiB for small files and 4 GiB for large ones, which files of much the same size share.
arrow::MemoryPool* table_memory(std::size_t file_bytes);

}  // namespace garam
