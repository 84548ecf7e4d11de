// A thread has 16 bytes of output at a time, kUnrolled of them under way: of 4-bit codes 4 bytes (f32: 2), whose
// scale it decodes for itself; neighbours share the sectors that scales lie in. Eight elements are about 45
// instructions, where the bandwidth of a large card leaves time for 160.
#include <algorithm>

#include "garam/kernels/cuda/dequantize.h"
#include "garam/kernels/cuda/four_bit.cuh"
#include "garam/kernels/cuda/gguf_blocks.cuh"

namespace garam::cuda {
namespace {

using Bf16 = __nv_bfloat16;

constexpr int kThreads = 256;
constexpr int kUnrolled = 4;
constexpr int kBlockGroups = kThreads * kUnrolled;

// Rows [first_row, first_row + rows), of which a launch takes so many that 32 bits count their groups.
struct Range {
    std::int64_t first_row, rows, columns;
    Rows out;
};

template <typename Out, int kElements>
__device__ __forceinline__ void store(Out* place, const float (&values)[kElements], bool aligned) {
    if (aligned) {
        constexpr int kEach = kVector<Out>;
#pragma unroll
        for (int v = 0; v < kElements / kEach; ++v) {
            Vector<Out, kEach> packed;
#pragma unroll
            for (int i = 0; i < kEach; ++i)
                packed.at[i] = from_float<Out>(values[v * kEach + i]);
            reinterpret_cast<Vector<Out, kEach>*>(place)[v] = packed;
        }
    } else {
#pragma unroll
        for (int i = 0; i < kElements; ++i)
            place[i] = from_float<Out>(values[i]);
    }
}

template <typename Out>
struct CodeWord;
template <>
struct CodeWord<Bf16> {
    using Type = std::uint32_t;
};
template <>
struct CodeWord<float> {
    using Type = std::uint16_t;
};

template <bool kDouble>
__device__ __forceinline__ float load_tables(const FourBitWork& work, float* table, float* map) {
    if (threadIdx.x < kCodes) table[threadIdx.x] = work.table[threadIdx.x];
    if constexpr (kDouble) {
        for (int i = static_cast<int>(threadIdx.x); i < kMapCodes; i += kThreads)
            map[i] = work.map[i];
    }
    __syncthreads();
    return kDouble ? *work.offset : 0.0f;
}

// Columns in whole groups of a vector, everything aligned to it.
template <typename Out, bool kDouble>
__global__ void __launch_bounds__(kThreads)
    four_bit_vectors(const __grid_constant__ FourBitWork work, Range range) {
    __shared__ float table[kCodes];
    __shared__ float map[kDouble ? kMapCodes : 1];
    constexpr int kElements = kVector<Out>;
    using Word = typename CodeWord<Out>::Type;
    const float offset = load_tables<kDouble>(work, table, map);
    const auto row_groups = static_cast<std::uint32_t>(range.columns / kElements);
    const std::uint32_t groups = row_groups * static_cast<std::uint32_t>(range.rows);
    const std::uint32_t first = blockIdx.x * kBlockGroups + threadIdx.x;
    const std::int64_t begin = range.first_row * range.columns;

    Word codes[kUnrolled];
    ReadAbsmax<kDouble> absmax[kUnrolled];
#pragma unroll
    for (int u = 0; u < kUnrolled; ++u) {
        const std::uint32_t group = first + u * kThreads;
        if (group >= groups) break;
        const std::int64_t element = begin + static_cast<std::int64_t>(group) * kElements;
        codes[u] = reinterpret_cast<const Word*>(work.codes)[element / kElements];
        absmax[u] = ReadAbsmax<kDouble>::of(work, element >> work.block_shift);
    }
#pragma unroll
    for (int u = 0; u < kUnrolled; ++u) {
        const std::uint32_t group = first + u * kThreads;
        if (group >= groups) break;
        const std::uint32_t row = group / row_groups;
        const std::uint32_t column = (group - row * row_groups) * kElements;
        const float scale = absmax[u].decode(map, offset);
        float values[kElements];
#pragma unroll
        for (int i = 0; i < kElements; ++i)
            values[i] = __fmul_rn(value_at(table, code_offset(codes[u], i)), scale);
        store(static_cast<Out*>(range.out.data) + row * range.out.pitch + column, values, true);
    }
}

// Any columns and addresses.
template <typename Out, bool kDouble>
__global__ void __launch_bounds__(kThreads)
    four_bit_elements(const __grid_constant__ FourBitWork work, Range range) {
    __shared__ float table[kCodes];
    __shared__ float map[kDouble ? kMapCodes : 1];
    const float offset = load_tables<kDouble>(work, table, map);
    const std::int64_t count = range.rows * range.columns;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
         i += static_cast<std::int64_t>(gridDim.x) * kThreads) {
        const std::int64_t row = i / range.columns;
        const std::int64_t element = range.first_row * range.columns + i;
        const int code = work.codes[element / 2] >> (element % 2 == 0 ? 4 : 0) & 15;
        const float scale =
            ReadAbsmax<kDouble>::of(work, element >> work.block_shift).decode(map, offset);
        static_cast<Out*>(range.out.data)[row * range.out.pitch + i - row * range.columns] =
            from_float<Out>(__fmul_rn(table[code], scale));
    }
}

template <QuantFormat kFormat, typename Out>
__global__ void __launch_bounds__(kThreads)
    gguf_groups(const std::uint8_t* codes, Range range, bool aligned) {
    constexpr GgufLayout kLayout = gguf_layout(kFormat);
    const auto row_groups = static_cast<std::uint32_t>(range.columns / kAtOnce);
    const std::uint32_t groups = row_groups * static_cast<std::uint32_t>(range.rows);
    const std::int64_t row_bytes = range.columns / kLayout.elements * kLayout.bytes;
#pragma unroll
    for (int u = 0; u < kUnrolled; ++u) {
        const std::uint32_t group = blockIdx.x * kBlockGroups + u * kThreads + threadIdx.x;
        if (group >= groups) break;
        const std::uint32_t row = group / row_groups;
        const std::uint32_t column = (group - row * row_groups) * kAtOnce;
        const std::uint8_t* const block =
            codes + (range.first_row + row) * row_bytes + column / kLayout.elements * kLayout.bytes;
        float values[kAtOnce];
        decode_gguf<kFormat>(block, static_cast<int>(column % kLayout.elements), values);
        store(static_cast<Out*>(range.out.data) + row * range.out.pitch + column, values, aligned);
    }
}

bool is_aligned(const void* pointer, std::uintptr_t bytes) {
    return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

template <typename Out>
bool stores_vectors(const Rows& out) {
    return is_aligned(out.data, 16) && out.pitch % kVector<Out> == 0;
}

// Calls launch(range, groups) for rows of at most 2^31 elements at a time.
template <typename Out, typename Launch>
void in_ranges(const Dequantize& work, const Launch& launch) {
    const std::int64_t columns = work.weight.columns;
    const std::int64_t most = std::max<std::int64_t>((std::int64_t{1} << 31) / columns, 1);
    for (std::int64_t row = 0; row < work.rows; row += most) {
        Range range{work.first_row + row, std::min(most, work.rows - row), columns, work.out};
        range.out.data = static_cast<Out*>(work.out.data) + row * work.out.pitch;
        launch(range);
        check_launch("dequantize");
    }
}

unsigned blocks_for(std::int64_t groups) {
    return static_cast<unsigned>((groups + kBlockGroups - 1) / kBlockGroups);
}

template <typename Out, bool kDouble>
void four_bit(StreamHandle stream, const Dequantize& work) {
    constexpr int kElements = kVector<Out>;
    const FourBitWork weight = four_bit_work(work.weight);
    const bool in_vectors = work.weight.columns % kElements == 0 && stores_vectors<Out>(work.out) &&
                            is_aligned(weight.codes, kElements / 2);
    in_ranges<Out>(work, [&](const Range& range) {
        const std::int64_t count = range.rows * range.columns;
        if (in_vectors) {
            four_bit_vectors<Out, kDouble>
                <<<blocks_for(count / kElements), kThreads, 0, stream>>>(weight, range);
        } else {
            four_bit_elements<Out, kDouble>
                <<<blocks_for(count), kThreads, 0, stream>>>(weight, range);
        }
    });
}

template <QuantFormat kFormat, typename Out>
void gguf(StreamHandle stream, const Dequantize& work) {
    const auto* const codes = static_cast<const std::uint8_t*>(work.weight.codes);
    const bool aligned = stores_vectors<Out>(work.out);
    in_ranges<Out>(work, [&](const Range& range) {
        gguf_groups<kFormat, Out>
            <<<blocks_for(range.rows * range.columns / kAtOnce), kThreads, 0, stream>>>(
                codes, range, aligned);
    });
}

template <typename Out>
void dequantize_to(StreamHandle stream, const Dequantize& work) {
    using enum QuantFormat;
    switch (work.weight.format) {
        case nf4:
        case fp4:
            return work.weight.nested_absmax != nullptr ? cuda::four_bit<Out, true>(stream, work)
                                                        : cuda::four_bit<Out, false>(stream, work);
        case q8_0:
            return gguf<q8_0, Out>(stream, work);
        case q4_0:
            return gguf<q4_0, Out>(stream, work);
        case q4_1:
            return gguf<q4_1, Out>(stream, work);
        case q5_0:
            return gguf<q5_0, Out>(stream, work);
        case q5_1:
            return gguf<q5_1, Out>(stream, work);
        case iq4_nl:
            return gguf<iq4_nl, Out>(stream, work);
        case q4_k:
            return gguf<q4_k, Out>(stream, work);
        case q5_k:
            return gguf<q5_k, Out>(stream, work);
        case q6_k:
            return gguf<q6_k, Out>(stream, work);
        case iq4_xs:
            return gguf<iq4_xs, Out>(stream, work);
    }
}

void dequantize(StreamHandle stream, const Dequantize& work) {
    if (work.rows == 0 || work.weight.columns == 0) return;
    if (work.out_is_bf16)
        dequantize_to<Bf16>(stream, work);
    else
        dequantize_to<float>(stream, work);
}

}  // namespace

const DequantizeKernels& dequantize_kernels() {
    static constexpr DequantizeKernels kTable{dequantize, quantize};
    return kTable;
}

}  // namespace garam::cuda
