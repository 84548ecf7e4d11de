// What Arrow takes memory from: no more than live buffers need and a little, however much is read.
//
// General allocators keep what each thread freed for that thread. Columns are decoded by threads in turns, so
// that every thread ends up keeping the most it ever held: several times what lives at once, and more the
// longer a file is.
#pragma once

#include <cstdint>

namespace arrow {
class MemoryPool;
}

namespace garam {

// Buffers of 64 KiB and more are mapped one by one, and serve any thread when they are freed. At most this much
// is mapped beyond what is in use.
constexpr std::int64_t kKeptTableBytes = std::int64_t{16} << 20;

// Refuses to grow beyond what any honest batch needs: sizes in files are hostile.
arrow::MemoryPool* table_memory();

}  // namespace garam
