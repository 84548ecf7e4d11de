// Sizes of the kernel of few rows against quantised weights (quantized_row_matmul.cu), by which a plan without a card
// knows what it will take, and where its lanes find their columns.
#pragma once

#include <cstdint>

#include "garam/kernels/cuda/dequantize.h"

namespace garam::cuda::quantized_row {

constexpr int kThreads = 384;
constexpr int kWarps = kThreads / 32;
constexpr int kMostParts = 3;  // weights of one product
constexpr int kStages = 1;     // steps that are loaded together
constexpr int kAhead = 2;      // steps that a warp asks for at its beginning beside kStages
constexpr int kTile = 16;      // rows of the weight
constexpr int kStep = 128;     // columns of it: four lanes of a row have a vector of codes each
constexpr int kLaneColumns = kStep / 4;
constexpr int kPairs = 256;
constexpr int kAbsmaxCodes = 256;
// A pair, in its 32 banks, begins a line of 256 bytes, so that one instruction makes its address of the byte and the
// lane; the other half of a line has scales.
constexpr int kLine = 256;
constexpr int kScalesOfLine = kLine / 8;
// Of a block.
constexpr std::int64_t kMostScales = kPairs * kScalesOfLine;
constexpr std::int64_t kMostWeightRows = 128;

// Vectors of 8 columns of a row of a, as a step lies in shared memory: those that the four lanes read at once are
// neighbours. Rows begin in other banks.
constexpr int kStepVectors = kStep / 8;
constexpr int kVectorsOfRowPad = 4;
constexpr int vector_place(int vector) {
    return (vector & ~(kStepVectors - 1)) | (vector & 3) << 2 | (vector >> 2 & 3);
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
    return (a + b - 1) / b;
}

// Runs of columns of a step that lie in one block of codes each: two of 64, or four of 32.
constexpr int runs_of(std::int64_t k, int block_shift) {
    return k % 64 == 0 && block_shift >= 6 ? 2 : 4;
}
// Scales of a row of the weight, one a run: an odd number of pairs, so that rows begin in other banks.
constexpr std::int64_t scale_pitch(std::int64_t k, int runs) {
    return (ceil_div(k, kStep) * runs / 2 | 1) * 2;
}
// Rows of the weight that a block takes, whole tiles; 0: none. However many rows of a there are, so that each has the
// same bits among any others; alone it may be summed in another order (quantized_one_row.cu).
constexpr std::int64_t most_weight_rows(std::int64_t k, int runs) {
    const std::int64_t scales = kMostScales / scale_pitch(k, runs);
    return (scales < kMostWeightRows ? scales : kMostWeightRows) / kTile * kTile;
}

// Shared memory behind the lines, in order. `rows`: of the weight.
struct Layout {
    std::int64_t map = 0, continued = 0, sums = 0, a = 0, bytes = 0;
};
constexpr Layout layout_of(std::int64_t m, std::int64_t k, std::int64_t rows) {
    Layout at;
    at.map = kPairs * kLine;
    at.continued = at.map + kAbsmaxCodes * 4;
    at.sums = at.continued + kWarps * kTile * m * 4;
    at.a = at.sums + ceil_div(rows, kTile) * kTile * m * 4;
    at.bytes = at.a + m * (ceil_div(k, kStep) * kStepVectors + kVectorsOfRowPad) * 16;
    return at;
}
// Of a block that has as many rows of the weight as it takes.
constexpr std::int64_t most_bytes(std::int64_t m, std::int64_t k, int runs) {
    return layout_of(m, k, most_weight_rows(k, runs)).bytes;
}

constexpr std::int64_t kMostShared = 98 << 10;  // a block's, of the smaller cards

inline bool takes_weight(const QuantizedWeight& weight) {
    constexpr std::int64_t kMost = std::int64_t{1} << 30;
    return is_four_bit(weight.format) && weight.columns % kLaneColumns == 0 && weight.columns > 0 &&
           most_weight_rows(weight.columns, runs_of(weight.columns, weight.block_shift)) > 0 &&
           weight.columns <= kMost && weight.rows <= kMost &&
           (weight.rows + kTile) * weight.columns < std::int64_t{1} << 32;
}

}  // namespace garam::cuda::quantized_row
