// What the kernels of few rows against 4-bit weights share (quantized_row_matmul.cu, quantized_one_row.cu): their work, a
// block's own part of it, the pairs of values that decode, and what is added to a sum.
#pragma once

#include "garam/kernels/cuda/four_bit.cuh"
#include "garam/kernels/cuda/quantized_row_loads.cuh"
#include "garam/kernels/cuda/quantized_row_matmul.h"
#include "garam/kernels/cuda/row_input.cuh"

namespace garam::cuda::quantized_row {

// One of the weights, whose rows follow those of the one before.
struct Part {
    const std::uint8_t* codes = nullptr;
    const void* absmax = nullptr;
    const float* nested_absmax = nullptr;  // nullptr: not double
    const float* offset = nullptr;
    int block_shift = 0, nested_shift = 0;
    int first_row = 0, rows = 0;
    int first_block = 0, blocks = 0;
    int rows_each = 0, rows_more = 0;  // of a block; so many of the first have one more
};

struct Work : MadeRow {
    Part parts[kMostParts];
    int part_count = 1;
    float table[kCodes] = {};
    float map[kMapCodes] = {};                                // of double quantisation
    std::uint32_t vectors_of_row = 1, by_vectors_of_row = 0;  // of four scales, and 2^32 through it
    int m = 0;
    std::int64_t k = 0;
    Rows a;
    int tail_columns = 0;
    Rows tail, tail_weight;
    Rows addend;
    const void* bias = nullptr;
    Rows c;
    bool c_is_bf16 = false;
    float pair_scale = 1;  // of the values that are multiplied
    float alpha = 1;       // with pair_scale divided out
    float tail_alpha = 1;
};

// What the parts are divided among.
struct Blocks {
    unsigned count = 0;
    std::int64_t rows = 0;  // of the largest
};

// The rows of the weights that a block takes.
struct OwnRows {
    const Part* part;
    int first_row;  // of the part
    int rows;
    std::int64_t first_column;  // of c

    __device__ __forceinline__ static OwnRows of(const Work& work) {
        int number = 0;
        while (number + 1 < work.part_count &&
               static_cast<int>(blockIdx.x) >= work.parts[number + 1].first_block)
            ++number;
        const Part& part = work.parts[number];
        const int block = static_cast<int>(blockIdx.x) - part.first_block;
        const int first = block * part.rows_each + min(block, part.rows_more);
        return {&part, first, part.rows_each + (block < part.rows_more ? 1 : 0),
                std::int64_t{part.first_row} + first};
    }
};

// A value a lane, of which four lines of pairs are written at once.
template <int kBlockThreads>
__device__ __forceinline__ void write_pairs(const Work& work, char* lines) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const std::uint32_t value = pack(work.table[lane % kCodes] * work.pair_scale, 0.0f) & 0xffffu;
    for (int line = 4 * warp; line < kPairs; line += 4 * (kBlockThreads / kWarp)) {
        const int code = line + lane / 8;
        const std::uint32_t first = __shfl_sync(0xffffffffu, value, code / kCodes);
        const std::uint32_t pair = first | __shfl_sync(0xffffffffu, value, code % kCodes) << 16;
        *reinterpret_cast<uint4*>(lines + code * kLine + lane % 8 * 16) =
            make_uint4(pair, pair, pair, pair);
    }
}

// What a word of codes of each of a lane's two rows decodes to, for two products.
struct Pairs {
    std::uint32_t first[4], second[4];
};
// pair_at(word, byte) looks one up.
template <typename PairAt>
__device__ __forceinline__ Pairs pairs_of(const PairAt& pair_at, std::uint32_t low,
                                          std::uint32_t high) {
    return {{pair_at(low, 0), pair_at(high, 0), pair_at(low, 1), pair_at(high, 1)},
            {pair_at(low, 2), pair_at(high, 2), pair_at(low, 3), pair_at(high, 3)}};
}

template <int kBlockThreads>
__device__ __forceinline__ void prefetch_tail_weight(const Work& work, const OwnRows& own) {
    const auto* const weight = static_cast<const Bf16*>(work.tail_weight.data);
    for (int i = static_cast<int>(threadIdx.x); work.tail_columns > 0 && i < own.rows;
         i += kBlockThreads) {
        for (int column = 0; column < work.tail_columns; column += 64)
            prefetch(weight + (own.first_column + i) * work.tail_weight.pitch + column);
    }
}

// What is added to a sum of row a_row of a and row `row` of the block's.
__device__ __forceinline__ float added(const Work& work, const OwnRows& own, int a_row, int row) {
    const std::int64_t column = own.first_column + row;
    float sum = 0;
    if (work.tail_columns > 0) {
        const Bf16* const tail = static_cast<const Bf16*>(work.tail.data) + a_row * work.tail.pitch;
        const Bf16* const weight =
            static_cast<const Bf16*>(work.tail_weight.data) + column * work.tail_weight.pitch;
        for (int v = 0; v < work.tail_columns / kElements; ++v)
            sum = add_products(load_vector_of(tail, v), load_vector_of(weight, v), sum);
        sum *= work.tail_alpha;
    }
    if (work.addend.data != nullptr)
        sum += element_of(work.addend.data, work.c_is_bf16, a_row * work.addend.pitch + column);
    if (work.bias != nullptr) sum += element_of(work.bias, work.c_is_bf16, column);
    return sum;
}

__device__ __forceinline__ void write_result(const Work& work, const OwnRows& own, int a_row,
                                             int row, float result) {
    const std::int64_t to = a_row * work.c.pitch + own.first_column + row;
    if (work.c_is_bf16)
        static_cast<Bf16*>(work.c.data)[to] = from_float<Bf16>(result);
    else
        static_cast<float*>(work.c.data)[to] = result;
}

// Divides the parts' rows evenly among blocks of at most most_rows each: one a multiprocessor, or one a tile of tile_rows
// where there are fewer tiles than that.
Blocks divide(Work& work, std::int64_t tile_rows, std::int64_t most_rows);

// For one row of a, with columns a multiple of 64 and blocks of 64 codes or more. False, and nothing is done, where it has more
// than 15,872 columns or needs more than most_bytes of shared memory, where rows do not begin with a block of codes, and
// where a part has no double quantisation.
bool multiply_one_row(StreamHandle stream, RowInput input, const Work& work,
                      std::int64_t most_bytes, bool early);

}  // namespace garam::cuda::quantized_row
