// Sums over a whole matrix on a card, in double precision and in a fixed order: the matrix is cut
// into chunks, each block adds up chunks that its number and the shape alone decide, and a last
// block adds the blocks' sums. Floor: the matrix read once, at the bandwidth of the memory.
#pragma once

#include <algorithm>

#include "garam/kernels/cuda/launch.h"

namespace garam::cuda {

constexpr std::int64_t kSumChunk = 4096;  // elements of one row
constexpr std::int64_t kMostSumBlocks = 1024;

constexpr std::int64_t sum_chunks(std::int64_t rows, std::int64_t columns) {
    return rows * ((columns + kSumChunk - 1) / kSumChunk);
}
// Blocks, each of which leaves one double in `partials`.
constexpr std::int64_t sum_blocks(std::int64_t rows, std::int64_t columns) {
    return std::min(sum_chunks(rows, columns), kMostSumBlocks);
}

struct ReduceKernels {
    // *result += sum of x, or of its squares; x f32. A dense matrix is better given as one row.
    void (*add_sum)(StreamHandle stream, Rows x, std::int64_t rows, std::int64_t columns,
                    bool squares, double* partials, float* result);
};
const ReduceKernels& reduce_kernels();

}  // namespace garam::cuda
