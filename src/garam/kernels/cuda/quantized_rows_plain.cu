// Few rows against quantised weights of any format, shape and address: a warp for each row of the weight, a lane for
// eight columns at a time, whose values it decodes as f32. Rows of a come from the first-level cache.
#include <algorithm>

#include "garam/core/error.h"
#include "garam/kernels/cuda/four_bit.cuh"
#include "garam/kernels/cuda/gguf_blocks.cuh"
#include "garam/kernels/cuda/quantized_row_matmul.h"

namespace garam::cuda {
namespace {

using Bf16 = __nv_bfloat16;

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kMostRows = 4;  // of a, that are summed at once

struct Work {
    int m = 0;
    std::int64_t n = 0, k = 0;
    Rows a;
    std::int64_t tail_columns = 0;
    Rows tail, tail_weight, addend;
    const void* bias = nullptr;
    Rows c;
    bool c_is_bf16 = false;
    float alpha = 1;
};

template <bool kDouble>
struct FourBitRow {
    const FourBitWork& weight;
    const float* table;
    const float* map;
    float offset;

    __device__ __forceinline__ float absmax(std::int64_t element) const {
        return ReadAbsmax<kDouble>::of(weight, element >> weight.block_shift).decode(map, offset);
    }
    // Columns [column, column + 8) of a row, of which `count` exist.
    __device__ __forceinline__ void decode(std::int64_t row, std::int64_t columns,
                                           std::int64_t column, int count,
                                           float (&out)[kAtOnce]) const {
        const std::int64_t first = row * columns + column;
        float scale = absmax(first);
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            out[i] = 0;
            if (i >= count) continue;
            const std::int64_t element = first + i;
            if (i > 0 && element % 32 == 0) scale = absmax(element);
            const int code = weight.codes[element / 2] >> (element % 2 == 0 ? 4 : 0) & 15;
            out[i] = __fmul_rn(table[code], scale);
        }
    }
};

template <QuantFormat kFormat>
struct GgufRow {
    const std::uint8_t* codes;

    __device__ __forceinline__ void decode(std::int64_t row, std::int64_t columns,
                                           std::int64_t column, int /*count*/,
                                           float (&out)[kAtOnce]) const {
        constexpr GgufLayout kLayout = gguf_layout(kFormat);
        const std::int64_t element = row * columns + column;
        decode_gguf<kFormat>(codes + element / kLayout.elements * kLayout.bytes,
                             static_cast<int>(element % kLayout.elements), out);
    }
};

template <typename In, typename Weight>
__device__ __forceinline__ void multiply_rows(const Work& work, const Weight& weight) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
    if (row >= work.n) return;  // a whole warp
    float sums[kMostRows] = {};
    float tails[kMostRows] = {};
    for (std::int64_t column = lane * kAtOnce; column < work.k; column += kWarp * kAtOnce) {
        const std::int64_t left = work.k - column;
        const int count = left < kAtOnce ? static_cast<int>(left) : kAtOnce;
        float values[kAtOnce];
        weight.decode(row, work.k, column, count, values);
#pragma unroll
        for (int r = 0; r < kMostRows; ++r) {
            if (r >= work.m) break;
            const In* const a = static_cast<const In*>(work.a.data) + r * work.a.pitch + column;
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i)
                if (i < count) sums[r] = fmaf(to_float(a[i]), values[i], sums[r]);
        }
    }
    for (std::int64_t column = lane; column < work.tail_columns; column += kWarp) {
        const float value = to_float(
            static_cast<const In*>(work.tail_weight.data)[row * work.tail_weight.pitch + column]);
#pragma unroll
        for (int r = 0; r < kMostRows; ++r) {
            if (r >= work.m) break;
            tails[r] =
                fmaf(to_float(static_cast<const In*>(work.tail.data)[r * work.tail.pitch + column]),
                     value, tails[r]);
        }
    }
    float result = 0;  // lane r's is of row r
#pragma unroll
    for (int r = 0; r < kMostRows; ++r) {
        const float whole = warp_sum(sums[r] + tails[r]);
        if (lane == r) result = work.alpha * whole;
    }
    if (lane >= work.m) return;
    if (work.addend.data != nullptr)
        result += element_of(work.addend.data, work.c_is_bf16, lane * work.addend.pitch + row);
    if (work.bias != nullptr) result += element_of(work.bias, work.c_is_bf16, row);
    const std::int64_t to = lane * work.c.pitch + row;
    if (work.c_is_bf16)
        static_cast<Bf16*>(work.c.data)[to] = from_float<Bf16>(result);
    else
        static_cast<float*>(work.c.data)[to] = result;
}

template <typename In, bool kDouble>
__global__ void __launch_bounds__(kThreads)
    four_bit_rows(const __grid_constant__ FourBitWork weight, const __grid_constant__ Work work) {
    __shared__ float table[kCodes];
    __shared__ float map[kMapCodes];
    if (threadIdx.x < kCodes) table[threadIdx.x] = weight.table[threadIdx.x];
    if (kDouble) map[threadIdx.x] = weight.map[threadIdx.x];
    static_assert(kThreads == kMapCodes);
    __syncthreads();
    multiply_rows<In>(work, FourBitRow<kDouble>{weight, table, map, kDouble ? *weight.offset : 0});
}

template <typename In, QuantFormat kFormat>
__global__ void __launch_bounds__(kThreads)
    gguf_rows(const std::uint8_t* codes, const __grid_constant__ Work work) {
    multiply_rows<In>(work, GgufRow<kFormat>{codes});
}

template <typename In, QuantFormat kFormat>
void gguf(StreamHandle stream, unsigned blocks, const void* codes, const Work& work) {
    gguf_rows<In, kFormat>
        <<<blocks, kThreads, 0, stream>>>(static_cast<const std::uint8_t*>(codes), work);
}

template <typename In>
void launch(StreamHandle stream, const QuantizedWeight& weight, const Work& work) {
    using enum QuantFormat;
    const auto blocks = static_cast<unsigned>((work.n + kWarps - 1) / kWarps);
    const auto of_gguf = [&]<QuantFormat kFormat>() {
        gguf<In, kFormat>(stream, blocks, weight.codes, work);
    };
    switch (weight.format) {
        case nf4:
        case fp4: {
            const FourBitWork codes = four_bit_work(weight);
            if (weight.nested_absmax != nullptr)
                four_bit_rows<In, true><<<blocks, kThreads, 0, stream>>>(codes, work);
            else
                four_bit_rows<In, false><<<blocks, kThreads, 0, stream>>>(codes, work);
            break;
        }
        case q8_0:
            of_gguf.template operator()<q8_0>();
            break;
        case q4_0:
            of_gguf.template operator()<q4_0>();
            break;
        case q4_1:
            of_gguf.template operator()<q4_1>();
            break;
        case q5_0:
            of_gguf.template operator()<q5_0>();
            break;
        case q5_1:
            of_gguf.template operator()<q5_1>();
            break;
        case iq4_nl:
            of_gguf.template operator()<iq4_nl>();
            break;
        case q4_k:
            of_gguf.template operator()<q4_k>();
            break;
        case q5_k:
            of_gguf.template operator()<q5_k>();
            break;
        case q6_k:
            of_gguf.template operator()<q6_k>();
            break;
        case iq4_xs:
            of_gguf.template operator()<iq4_xs>();
            break;
    }
    check_launch("quantized_rows");
}

Rows from_row(const Rows& rows, std::int64_t row, std::int64_t bytes) {
    if (rows.data == nullptr) return rows;
    return {static_cast<char*>(rows.data) + row * rows.pitch * bytes, rows.pitch};
}

}  // namespace

void quantized_rows_plain(StreamHandle stream, const QuantizedRowMatmul& x) {
    GARAM_CHECK(x.input == RowInput::given && x.parts == 1,
                "the row is to be made, and its weights parted, before this product");
    const std::int64_t in_bytes = x.a_is_bf16 ? 2 : 4;
    const std::int64_t out_bytes = x.c_is_bf16 ? 2 : 4;
    for (std::int64_t row = 0; row < x.m; row += kMostRows) {
        Work work;
        work.m = static_cast<int>(std::min<std::int64_t>(kMostRows, x.m - row));
        work.n = x.weights[0].rows;
        work.k = x.weights[0].columns;
        work.a = from_row(x.a, row, in_bytes);
        work.tail_columns = x.tail_columns;
        work.tail = from_row(x.tail, row, in_bytes);
        work.tail_weight = x.tail_weight;
        work.addend = from_row(x.addend, row, out_bytes);
        work.bias = x.bias;
        work.c = from_row(x.c, row, out_bytes);
        work.c_is_bf16 = x.c_is_bf16;
        work.alpha = x.alpha;
        if (x.a_is_bf16)
            launch<Bf16>(stream, x.weights[0], work);
        else
            launch<float>(stream, x.weights[0], work);
    }
}

}  // namespace garam::cuda
