// A thread takes 8 values at a time, kUnrolled times, and the block / 8 lanes that share a block of 4-bit codes
// find its absmax together; values stay in registers. Larger blocks than a warp's are read twice, the second
// time from cache.
//
// Codes by table: y falls into one of 32 cells that are narrower than the distance of two thresholds, so that a cell
// has at most one of them; the cell gives the code below and the threshold to compare with. 16 instructions a
// value, where the bandwidth of a large card leaves time for 19 (bf16).
//
// With double quantisation each block of threads also adds up the absmax that it has found, and one more kernel, whose
// blocks are placed while the first one ends, makes the mean of the sums (each block for itself) and the codes: a warp
// for each nested block.
#include <algorithm>

#include "garam/kernels/cuda/dequantize.h"
#include "garam/kernels/cuda/device_code.cuh"
#include "garam/kernels/cuda/early_launch.cuh"

namespace garam::cuda {
namespace {

using Bf16 = __nv_bfloat16;

constexpr int kThreads = 256;
constexpr int kUnrolled = 4;
constexpr int kGroup = 8;  // values that a thread takes at once
constexpr int kGroupsPerBlock = kThreads * kUnrolled;
constexpr int kCells = 32;
constexpr int kMostThresholds = 15;
constexpr int kMapCodes = 256;
constexpr int kMostShift = 8;  // of blocks that lanes share
static_assert(kGroupsPerBlock * kGroup == kSummedElements);
constexpr float kLeastScale = 1e-38f;

struct Thresholds {
    float at[kMostThresholds];
};
struct Cells {
    float threshold[kCells];     // infinity: none
    std::uint32_t code[kCells];  // of what is not above it; of FP4 with the other in the upper half
};

// Four times the cell: 31 times the place of y in [-1, 1] (of FP4 |y| in [0, 1]) rounded to quarters, without these.
// NaN is in the first cell. It rises with y, and is the same wherever it is computed.
template <bool kFp4>
__device__ __forceinline__ std::uint32_t cell_offset(float y) {
    const float place = kFp4 ? __saturatef(fabsf(y)) : __saturatef(__fmaf_rn(y, 0.5f, 0.5f));
    return __float_as_uint(__fmaf_rn(place, 31.0f, 2097152.0f)) & 0x7cu;
}
__device__ __forceinline__ std::uint32_t fp4_pattern(int rank) {
    return static_cast<std::uint32_t>((rank & 1) | ((-(rank >> 1) & 3) << 1));
}

template <bool kFp4>
__device__ __forceinline__ void make_cells(const Thresholds& thresholds, Cells& cells) {
    constexpr int kNum = kFp4 ? 7 : 15;
    if (threadIdx.x < kCells) {
        int below = 0;
        float own = __int_as_float(0x7f800000);
#pragma unroll
        for (int i = 0; i < kNum; ++i) {
            const std::uint32_t cell = cell_offset<kFp4>(thresholds.at[i]) / 4;
            below += cell < threadIdx.x ? 1 : 0;
            if (cell == threadIdx.x) own = thresholds.at[i];
        }
        cells.threshold[threadIdx.x] = own;
        cells.code[threadIdx.x] =
            kFp4 ? fp4_pattern(below) | fp4_pattern(below + 1) << 16 : static_cast<unsigned>(below);
    }
    __syncthreads();
}

template <bool kFp4>
__device__ __forceinline__ std::uint32_t code_of(float y, const Cells& cells) {
    const std::uint32_t offset = cell_offset<kFp4>(y);
    const auto at = [&](const void* table) {
        return reinterpret_cast<const std::uint32_t*>(static_cast<const char*>(table) + offset);
    };
    const float threshold = __uint_as_float(*at(cells.threshold));
    const std::uint32_t code = *at(cells.code);
    if constexpr (!kFp4) return code + (y > threshold ? 1u : 0u);
    return (code >> (fabsf(y) > threshold ? 16 : 0) & 7u) + (y < 0.0f ? 8u : 0u);
}

// Eight values from number 8 * group on; beyond the end zeros.
template <typename In>
struct Values {
    float at[kGroup];

    __device__ __forceinline__ static Values load(const In* values, std::int64_t group,
                                                  std::int64_t elements, bool aligned) {
        Values x;
        const std::int64_t first = group * kGroup;
        if (aligned && first + kGroup <= elements) {
            constexpr int kEach = kVector<In>;
#pragma unroll
            for (int v = 0; v < kGroup / kEach; ++v) {
                const auto packed = reinterpret_cast<const Vector<In, kEach>*>(values + first)[v];
#pragma unroll
                for (int i = 0; i < kEach; ++i)
                    x.at[v * kEach + i] = to_float(packed.at[i]);
            }
        } else {
#pragma unroll
            for (int i = 0; i < kGroup; ++i)
                x.at[i] = first + i < elements ? to_float(values[first + i]) : 0.0f;
        }
        return x;
    }
    // As bits, which rise with the magnitude and put NaN above all.
    __device__ __forceinline__ std::uint32_t largest() const {
        std::uint32_t bits = 0;
#pragma unroll
        for (int i = 0; i < kGroup; ++i)
            bits = max(bits, __float_as_uint(at[i]) & 0x7fffffffu);
        return bits;
    }
};

__device__ __forceinline__ float approximate_reciprocal(float x) {
    float y;
    asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float reciprocal(float largest) {
    return __frcp_rn(fmaxf(largest, kLeastScale));
}
// Of a block of weights: bitsandbytes' kernels are compiled to divide approximately. With subnormal scales they give
// codes without meaning.
__device__ __forceinline__ float inverse_of(float absmax) {
    constexpr float kLeastNormal = 0x1p-126f;
    return absmax >= kLeastNormal ? approximate_reciprocal(absmax) : reciprocal(absmax);
}

template <bool kFp4, typename In>
__device__ __forceinline__ void write_codes(const Values<In>& x, float inverse, const Cells& cells,
                                            std::uint8_t* codes, std::int64_t group,
                                            std::int64_t elements, bool aligned) {
    std::uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < kGroup; ++i)
        word += code_of<kFp4>(__fmul_rn(x.at[i], inverse), cells) << (4 * (i ^ 1));
    const std::int64_t first = group * kGroup;
    if (aligned && first + kGroup <= elements) {
        reinterpret_cast<std::uint32_t*>(codes)[group] = word;
    } else {
        for (int i = 0; i < kGroup && first + i < elements; i += 2)
            codes[(first + i) / 2] = static_cast<std::uint8_t>(word >> (4 * i));
    }
}

struct Work {
    const void* values;
    std::int64_t elements;
    std::uint8_t* codes;
    float* absmax;
    double* sums;  // nullptr: not double
    int block_shift;
    bool values_aligned, codes_aligned;
    Thresholds thresholds;
};

// Sums are the host's (four_bit.cpp): strided over as many as there are lanes, then of halves.
__device__ __forceinline__ double sum_of_lanes(double x) {
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

// Blocks of up to 256 values: of 4, 8, 16 or all lanes of a warp.
template <typename In, bool kFp4>
__global__ void __launch_bounds__(kThreads) quantize_blocks(const __grid_constant__ Work work) {
    __shared__ Cells cells;
    __shared__ float found[kGroupsPerBlock * kGroup / 32];
    if (work.sums != nullptr) let_next_begin();
    make_cells<kFp4>(work.thresholds, cells);
    const int lanes = 1 << (work.block_shift - 3);
    const std::int64_t first =
        static_cast<std::int64_t>(blockIdx.x) * kGroupsPerBlock + threadIdx.x;
    Values<In> x[kUnrolled];
    std::uint32_t largest[kUnrolled];
#pragma unroll
    for (int u = 0; u < kUnrolled; ++u) {
        x[u] = Values<In>::load(static_cast<const In*>(work.values), first + u * kThreads,
                                work.elements, work.values_aligned);
        largest[u] = x[u].largest();
    }
    for (int offset = 1; offset < lanes; offset *= 2) {
#pragma unroll
        for (int u = 0; u < kUnrolled; ++u)
            largest[u] = max(largest[u], __shfl_xor_sync(0xffffffffu, largest[u], offset));
    }
#pragma unroll
    for (int u = 0; u < kUnrolled; ++u) {
        const std::int64_t group = first + u * kThreads;
        const float absmax = __uint_as_float(largest[u]);
        if (work.sums != nullptr && threadIdx.x % lanes == 0)
            found[(u * kThreads + threadIdx.x) * kGroup >> work.block_shift] = absmax;
        if (group * kGroup >= work.elements) continue;
        if (threadIdx.x % lanes == 0) work.absmax[group * kGroup >> work.block_shift] = absmax;
        write_codes<kFp4>(x[u], inverse_of(absmax), cells, work.codes, group, work.elements,
                          work.codes_aligned);
    }
    if (work.sums == nullptr) return;
    __syncthreads();
    if (threadIdx.x >= kWarp) return;
    double sum = 0;
    for (int i = threadIdx.x; i < kSummedElements >> work.block_shift; i += kWarp)
        sum += static_cast<double>(found[i]);
    sum = sum_of_lanes(sum);
    if (threadIdx.x == 0) work.sums[blockIdx.x] = sum;
}

// Larger ones: a warp each.
template <typename In, bool kFp4>
__global__ void __launch_bounds__(kThreads)
    quantize_large_blocks(const __grid_constant__ Work work) {
    __shared__ Cells cells;
    make_cells<kFp4>(work.thresholds, cells);
    const std::int64_t block =
        static_cast<std::int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
    const std::int64_t groups = std::int64_t{1} << (work.block_shift - 3);
    const std::int64_t begin = block * groups;
    if (begin * kGroup >= work.elements) return;  // a whole warp
    const auto lane = static_cast<std::int64_t>(threadIdx.x % kWarp);
    const auto load = [&](std::int64_t group) {
        return Values<In>::load(static_cast<const In*>(work.values), group, work.elements,
                                work.values_aligned);
    };
    std::uint32_t largest = 0;
    for (std::int64_t group = begin + lane; group < begin + groups; group += kWarp)
        largest = max(largest, load(group).largest());
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
        largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    const float absmax = __uint_as_float(largest);
    if (lane == 0) work.absmax[block] = absmax;
    const float inverse = inverse_of(absmax);
    for (std::int64_t group = begin + lane; group < begin + groups; group += kWarp)
        write_codes<kFp4>(load(group), inverse, cells, work.codes, group, work.elements,
                          work.codes_aligned);
}

// The sums of large blocks: a warp each, of up to 16.
__global__ void __launch_bounds__(kThreads)
    sum_large_blocks(const float* absmax, std::int64_t blocks, int block_shift, double* sums,
                     std::int64_t count) {
    let_next_begin();
    const std::int64_t own =
        static_cast<std::int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
    if (own >= count) return;  // a whole warp
    const auto lane = static_cast<int>(threadIdx.x % kWarp);
    const int each = kSummedElements >> block_shift;
    const std::int64_t block = own * each + lane;
    const float x = lane < each && block < blocks ? absmax[block] : 0.0f;
    const double sum = sum_of_lanes(static_cast<double>(x));
    if (lane == 0) sums[own] = sum;
}

struct Map {
    float at[kMapCodes];
};

constexpr int kAtOnce = 8;  // absmax of a lane

// As nearest_code() of quant/dynamic_map.h: at a midpoint the even one of two codes.
__device__ __forceinline__ void nearest_codes(const float* map, const float (&x)[kAtOnce],
                                              unsigned (&codes)[kAtOnce]) {
    unsigned upper[kAtOnce] = {};
#pragma unroll
    for (unsigned step = 128; step > 0; step /= 2) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
            upper[i] += x[i] > map[upper[i] + step - 1] ? step : 0;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
        const unsigned u = upper[i] + (x[i] > map[upper[i]] ? 1 : 0);
        const float below = map[u == 0 ? 0 : u - 1];
        const float midpoint = __fmul_rn(__fadd_rn(below, map[u == 256 ? 255 : u]), 0.5f);
        const bool takes_upper = x[i] > midpoint || (x[i] == midpoint && u % 2 == 0);
        codes[i] = u != 0 && (u == 256 || !takes_upper) ? u - 1 : u;
    }
}

struct Absmax {
    const float* absmax;
    std::int64_t blocks;
    int nested_shift;
    const double* sums;
    std::int64_t num_sums;
    std::uint8_t* codes;
    float* nested_absmax;
    float* offset;
    Map map;
};

// The same in all threads.
__device__ __forceinline__ double sum_of_sums(const Absmax& work, double (&shared)[kThreads]) {
    static_assert(kThreads == 256);
    double own = 0;
#pragma unroll 8
    for (std::int64_t i = threadIdx.x; i < work.num_sums; i += kThreads)
        own += work.sums[i];
    shared[threadIdx.x] = own;
    __syncthreads();
    const auto halves = [&](int i) {
        const auto quarters = [&](int j) { return shared[j] + shared[j + 128]; };
        return quarters(i) + quarters(i + 64);
    };
    const auto lane = static_cast<int>(threadIdx.x % kWarp);
    return sum_of_lanes(halves(lane) + halves(lane + 32));
}

// A warp for each nested block.
__global__ void __launch_bounds__(kThreads) quantize_absmax(const __grid_constant__ Absmax work) {
    __shared__ float values[kMapCodes];
    __shared__ double shared[kThreads];
    values[threadIdx.x] = work.map.at[threadIdx.x];
    static_assert(kThreads == kMapCodes);
    wait_for_previous();
    const float mean =
        static_cast<float>(sum_of_sums(work, shared) / static_cast<double>(work.blocks));
    if (blockIdx.x == 0 && threadIdx.x == 0) *work.offset = mean;

    const std::int64_t size = std::int64_t{1} << work.nested_shift;
    const auto lane = static_cast<std::int64_t>(threadIdx.x % kWarp);
    for (std::int64_t nested =
             static_cast<std::int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
         nested << work.nested_shift < work.blocks;
         nested += static_cast<std::int64_t>(gridDim.x) * (kThreads / kWarp)) {
        const std::int64_t begin = nested << work.nested_shift;
        const std::int64_t end = min(begin + size, work.blocks);
        // Elements i, i + 32, … without the mean, zeros beyond the end.
        const auto load = [&](std::int64_t i, float(&x)[kAtOnce]) {
#pragma unroll
            for (int e = 0; e < kAtOnce; ++e)
                x[e] = i + e * kWarp < end ? __fsub_rn(work.absmax[i + e * kWarp], mean) : 0.0f;
        };
        float x[kAtOnce];
        std::uint32_t largest = 0;
        for (std::int64_t i = begin + lane; i < end; i += kWarp * kAtOnce) {
            load(i, x);
#pragma unroll
            for (int e = 0; e < kAtOnce; ++e)
                largest = max(largest, __float_as_uint(x[e]) & 0x7fffffffu);
        }
#pragma unroll
        for (int offset = kWarp / 2; offset > 0; offset /= 2)
            largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
        const float whole = __uint_as_float(largest);
        if (lane == 0) work.nested_absmax[nested] = whole;
        const float inverse = reciprocal(whole);
        for (std::int64_t i = begin + lane; i < end; i += kWarp * kAtOnce) {
            load(i, x);
#pragma unroll
            for (int e = 0; e < kAtOnce; ++e)
                x[e] = __fmul_rn(x[e], inverse);
            unsigned codes[kAtOnce];
            nearest_codes(values, x, codes);
#pragma unroll
            for (int e = 0; e < kAtOnce; ++e)
                if (i + e * kWarp < end)
                    work.codes[i + e * kWarp] = static_cast<std::uint8_t>(codes[e]);
        }
    }
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
    return (a + b - 1) / b;
}
bool is_aligned(const void* pointer, std::uintptr_t bytes) {
    return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

template <typename In, bool kFp4>
void quantize_values(StreamHandle stream, const Quantize& x) {
    Work work{x.values,
              x.elements,
              static_cast<std::uint8_t*>(x.codes),
              x.absmax,
              x.absmax_codes != nullptr ? x.sums : nullptr,
              x.block_shift,
              is_aligned(x.values, 16),
              is_aligned(x.codes, 4),
              {}};
    std::copy_n(x.thresholds, kFp4 ? 7 : 15, work.thresholds.at);
    if (x.block_shift <= kMostShift) {
        const std::int64_t groups = ceil_div(x.elements, kGroup);
        quantize_blocks<In, kFp4>
            <<<static_cast<unsigned>(ceil_div(groups, kGroupsPerBlock)), kThreads, 0, stream>>>(
                work);
    } else {
        const std::int64_t blocks = ceil_div(x.elements, std::int64_t{1} << x.block_shift);
        quantize_large_blocks<In, kFp4>
            <<<static_cast<unsigned>(ceil_div(blocks, kThreads / kWarp)), kThreads, 0, stream>>>(
                work);
    }
    check_launch("quantize");
}

void quantize_scales(StreamHandle stream, const Quantize& x) {
    constexpr int kWarps = kThreads / kWarp;
    Absmax work{x.absmax,
                ceil_div(x.elements, std::int64_t{1} << x.block_shift),
                x.nested_shift,
                x.sums,
                ceil_div(x.elements, kSummedElements),
                x.absmax_codes,
                x.nested_absmax,
                x.offset,
                {}};
    std::copy_n(x.map, kMapCodes, work.map.at);
    if (x.block_shift > kMostShift) {
        sum_large_blocks<<<static_cast<unsigned>(ceil_div(work.num_sums, kWarps)), kThreads, 0,
                           stream>>>(x.absmax, work.blocks, x.block_shift, x.sums, work.num_sums);
        check_launch("quantize");
    }
    const std::int64_t nested = ceil_div(work.blocks, std::int64_t{1} << x.nested_shift);
    const std::int64_t blocks = std::min<std::int64_t>(ceil_div(nested, kWarps),
                                                       2 * multiprocessors());  // each adds sums
    launch_early(quantize_absmax, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, stream,
                 work);
    check_launch("quantize");
}

}  // namespace

void quantize(StreamHandle stream, const Quantize& work) {
    if (work.elements == 0) return;
    if (work.values_are_bf16)
        work.is_fp4 ? quantize_values<Bf16, true>(stream, work)
                    : quantize_values<Bf16, false>(stream, work);
    else
        work.is_fp4 ? quantize_values<float, true>(stream, work)
                    : quantize_values<float, false>(stream, work);
    if (work.absmax_codes != nullptr) quantize_scales(stream, work);
}

}  // namespace garam::cuda
