#include "garam/kernels/cuda/column_sums.h"
#include "garam/kernels/cuda/device_code.cuh"

namespace garam::cuda {
namespace {

constexpr int kParts = 16;  // warps of a block, each with every kParts-th row

// A block adds the rows of a warp's width of columns.
__global__ void __launch_bounds__(kWarp* kParts)
    add_pieces(const float* partials, int pieces, std::int64_t columns, float* sum) {
    __shared__ float sums[kParts][kWarp];
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x;
    const int part = static_cast<int>(threadIdx.y);
    float total = 0;
    if (column < columns) {
#pragma unroll 4
        for (int piece = part; piece < pieces; piece += kParts)
            total += partials[piece * columns + column];
    }
    sums[part][threadIdx.x] = total;
    __syncthreads();
    if (part != 0 || column >= columns) return;
#pragma unroll
    for (int other = 1; other < kParts; ++other)
        total += sums[other][threadIdx.x];
    sum[column] += total;
}

}  // namespace

void add_piece_sums(StreamHandle stream, const float* partials, std::int64_t pieces,
                    std::int64_t columns, float* sum) {
    const std::int64_t blocks = (columns + kWarp - 1) / kWarp;
    add_pieces<<<static_cast<unsigned>(blocks), dim3(kWarp, kParts), 0, stream>>>(
        partials, static_cast<int>(pieces), columns, sum);
    check_launch("add_piece_sums");
}

}  // namespace garam::cuda
