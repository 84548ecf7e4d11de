// A thread takes 8 values at a time, kUnrolled times, and the block / 8 lanes that share a block of 4-bit codes
// find its absmax together; values stay in registers. Larger blocks than a warp's are read twice, the second
// time from cache.
//
// Codes by table: y falls into one of 32 cells that are narrower than the distance of two thresholds, so that a cell
// has at most one of them; the cell gives the code below and the threshold to compare with. 16 instructions a
// value, where the bandwidth of a large card leaves time for 19 (bf16).
#include <algorithm>

#include "garam/kernels/cuda/dequantize.h"
#include "garam/kernels/cuda/device_code.cuh"

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
    int block_shift;
    bool values_aligned, codes_aligned;
    Thresholds thresholds;
};

// Blocks of up to 256 values: of 4, 8, 16 or all lanes of a warp.
template <typename In, bool kFp4>
__global__ void __launch_bounds__(kThreads) quantize_blocks(const __grid_constant__ Work work) {
    __shared__ Cells cells;
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
        if (group * kGroup >= work.elements) break;
        const float absmax = __uint_as_float(largest[u]);
        if (threadIdx.x % lanes == 0) work.absmax[group * kGroup >> work.block_shift] = absmax;
        write_codes<kFp4>(x[u], inverse_of(absmax), cells, work.codes, group, work.elements,
                          work.codes_aligned);
    }
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

// Double quantisation. The order of sums is the host's: within a nested block, then over these.
constexpr int kSumThreads = 32;

__global__ void __launch_bounds__(kSumThreads)
    sum_nested_blocks(const float* absmax, std::int64_t blocks, int nested_shift, double* sums) {
    // A warp brings tiles of 32 values of each of its 32 nested blocks; a lane adds up its own.
    __shared__ float tile[kSumThreads][kSumThreads + 1];
    const int lane = static_cast<int>(threadIdx.x);
    const std::int64_t nested = std::int64_t{1} << nested_shift;
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kSumThreads;
    double sum = 0;
    for (std::int64_t within = 0; within < nested; within += kSumThreads) {
#pragma unroll 8
        for (int n = 0; n < kSumThreads; ++n) {
            const std::int64_t i = (first + n) * nested + within + lane;
            tile[n][lane] = within + lane < nested && i < blocks ? absmax[i] : 0.0f;
        }
        __syncwarp();
#pragma unroll 8
        for (int i = 0; i < kSumThreads; ++i)
            sum += static_cast<double>(tile[lane][i]);
        __syncwarp();
    }
    if ((first + lane) * nested < blocks) sums[first + lane] = sum;
}

__global__ void __launch_bounds__(kThreads)
    mean_of_sums(const double* sums, std::int64_t count, std::int64_t blocks, float* offset) {
    __shared__ double tile[2][kThreads];
    const auto thread = static_cast<int>(threadIdx.x);
    double sum = 0;
    int slot = 0;
    for (std::int64_t begin = 0; begin < count; begin += kThreads, slot ^= 1) {
        tile[slot][thread] = begin + thread < count ? sums[begin + thread] : 0.0;
        __syncthreads();
        if (thread == 0) {
#pragma unroll 16
            for (int i = 0; i < kThreads; ++i)
                sum += tile[slot][i];  // zeros at the end change no sum of magnitudes
        }
    }
    if (thread == 0) *offset = static_cast<float>(sum / static_cast<double>(blocks));
}

struct Map {
    float at[kMapCodes];
};

// As nearest_code() of quant/dynamic_map.h: at a midpoint the even one of two codes.
__device__ __forceinline__ std::uint8_t nearest_code(const float* map, float x) {
    unsigned upper = 0;
#pragma unroll
    for (unsigned step = 128; step > 0; step /= 2)
        upper += x > map[upper + step - 1] ? step : 0;
    upper += x > map[upper] ? 1 : 0;
    if (upper == 0) return 0;
    if (upper == 256) return 255;
    const float midpoint = __fmul_rn(__fadd_rn(map[upper - 1], map[upper]), 0.5f);
    const bool takes_upper = x > midpoint || (x == midpoint && upper % 2 == 0);
    return static_cast<std::uint8_t>(takes_upper ? upper : upper - 1);
}

// A block of threads for each nested block.
__global__ void __launch_bounds__(kThreads)
    quantize_absmax(const float* absmax, std::int64_t blocks, int nested_shift, const float* offset,
                    const __grid_constant__ Map map, std::uint8_t* codes, float* nested_absmax) {
    __shared__ float values[kMapCodes];
    __shared__ std::uint32_t shared[kThreads / kWarp];
    for (int i = static_cast<int>(threadIdx.x); i < kMapCodes; i += kThreads)
        values[i] = map.at[i];
    const float mean = *offset;
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) << nested_shift;
    const std::int64_t nested = std::int64_t{1} << nested_shift;
    const std::int64_t end = begin + nested < blocks ? begin + nested : blocks;
    std::uint32_t largest = 0;
    for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads)
        largest = max(largest, __float_as_uint(__fsub_rn(absmax[i], mean)) & 0x7fffffffu);
#pragma unroll
    for (int shift = kWarp / 2; shift > 0; shift /= 2)
        largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, shift));
    if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = largest;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < kThreads / kWarp; ++w)
        largest = max(largest, shared[w]);
    const float whole = __uint_as_float(largest);
    if (threadIdx.x == 0) nested_absmax[blockIdx.x] = whole;
    const float inverse = reciprocal(whole);
    for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads)
        codes[i] = nearest_code(values, __fmul_rn(__fsub_rn(absmax[i], mean), inverse));
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
              x.block_shift,
              is_aligned(x.values, 16),
              is_aligned(x.codes, 4),
              {}};
    std::copy_n(x.thresholds, kFp4 ? 7 : 15, work.thresholds.at);
    if (x.block_shift <= 8) {
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
    const std::int64_t blocks = ceil_div(x.elements, std::int64_t{1} << x.block_shift);
    const std::int64_t nested = ceil_div(blocks, std::int64_t{1} << x.nested_shift);
    Map map;
    std::copy_n(x.map, kMapCodes, map.at);
    sum_nested_blocks<<<static_cast<unsigned>(ceil_div(nested, kSumThreads)), kSumThreads, 0,
                        stream>>>(x.absmax, blocks, x.nested_shift, x.sums);
    check_launch("quantize");
    mean_of_sums<<<1, kThreads, 0, stream>>>(x.sums, nested, blocks, x.offset);
    check_launch("quantize");
    quantize_absmax<<<static_cast<unsigned>(nested), kThreads, 0, stream>>>(
        x.absmax, blocks, x.nested_shift, x.offset, map, x.absmax_codes, x.nested_absmax);
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
