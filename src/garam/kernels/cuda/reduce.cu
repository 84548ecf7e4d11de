#include "garam/kernels/cuda/device_code.cuh"
#include "garam/kernels/cuda/reduce.h"

namespace garam::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;
static_assert(kSumChunk == kThreads * 4 * kUnroll);

// Sum over the block, in thread 0.
__device__ __forceinline__ double block_total(double sum) {
    __shared__ double sums[kThreads / kWarp];
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return 0;
    double total = 0;
#pragma unroll
    for (int warp = 0; warp < kThreads / kWarp; ++warp)
        total += sums[warp];
    return total;
}

// N: elements an access.
template <bool kSquares, int N>
__global__ void __launch_bounds__(kThreads)
    sum_chunks_of(const float* x, std::int64_t pitch, std::int64_t columns,
                  std::int64_t chunks_a_row, std::int64_t chunks, double* partials) {
    constexpr int kSteps = static_cast<int>(kSumChunk) / (kThreads * N);
    double sums[N] = {};
    const auto add = [&](float value, double& sum) {
        const double wide = static_cast<double>(value);
        sum = kSquares ? fma(wide, wide, sum) : sum + wide;
    };
    for (std::int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        const std::int64_t row = chunks_a_row == chunks ? 0 : chunk / chunks_a_row;
        const std::int64_t begin = (chunk - row * chunks_a_row) * kSumChunk;
        const float* const from = x + row * pitch + begin;
        const int count =
            static_cast<int>(min(columns - begin, static_cast<std::int64_t>(kSumChunk)));
        if (count == kSumChunk) {
            Vector<float, N> part[kSteps];
#pragma unroll
            for (int step = 0; step < kSteps; ++step)
                part[step] = *reinterpret_cast<const Vector<float, N>*>(
                    from + (step * kThreads + static_cast<int>(threadIdx.x)) * N);
#pragma unroll
            for (int step = 0; step < kSteps; ++step)
#pragma unroll
                for (int i = 0; i < N; ++i)
                    add(part[step].at[i], sums[i]);
        } else {
            for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads)
                add(from[i], sums[0]);
        }
    }
    double sum = 0;
#pragma unroll
    for (int i = 0; i < N; ++i)
        sum += sums[i];
    const double total = block_total(sum);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

__global__ void __launch_bounds__(kThreads)
    add_partials(const double* partials, int count, float* result) {
    double sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads)
        sum += partials[i];
    const double total = block_total(sum);
    if (threadIdx.x == 0) *result = static_cast<float>(static_cast<double>(*result) + total);
}

template <bool kSquares>
void sum_of(StreamHandle stream, Rows x, std::int64_t rows, std::int64_t columns,
            double* partials) {
    const auto blocks = static_cast<unsigned>(sum_blocks(rows, columns));
    const std::int64_t chunks = sum_chunks(rows, columns);
    const float* const from = static_cast<const float*>(x.data);
    const bool by_vectors =
        reinterpret_cast<std::uintptr_t>(from) % 16 == 0 && (rows == 1 || x.pitch % 4 == 0);
    if (by_vectors)
        sum_chunks_of<kSquares, 4><<<blocks, kThreads, 0, stream>>>(
            from, x.pitch, columns, chunks / rows, chunks, partials);
    else
        sum_chunks_of<kSquares, 1><<<blocks, kThreads, 0, stream>>>(
            from, x.pitch, columns, chunks / rows, chunks, partials);
    check_launch("sum");
}

void add_sum(StreamHandle stream, Rows x, std::int64_t rows, std::int64_t columns, bool squares,
             double* partials, float* result) {
    if (rows == 0 || columns == 0) return;
    if (squares)
        sum_of<true>(stream, x, rows, columns, partials);
    else
        sum_of<false>(stream, x, rows, columns, partials);
    add_partials<<<1, kThreads, 0, stream>>>(partials, static_cast<int>(sum_blocks(rows, columns)),
                                             result);
    check_launch("add_partials");
}

}  // namespace

const ReduceKernels& reduce_kernels() {
    static const ReduceKernels kKernels{add_sum};
    return kKernels;
}

}  // namespace garam::cuda
