// Sizes of the kernel of few rows against quantised weights (quantized_row_matmul.cu), by which a plan without a card
// knows what it will take.
#pragma once

#include <cstdint>

#include "garam/kernels/cuda/dequantize.h"

namespace garam::cuda::quantized_row {

constexpr int kThreads = 384;
constexpr int kWarps = kThreads / 32;
constexpr int kStages = 2;
constexpr int kAhead = 3;
constexpr int kTile = 8;  // rows of the weight
constexpr int kStep =
    256;  // columns of it: a lane copies two vectors and holds one absmax (or two)
constexpr int kPairs = 256;
constexpr int kAbsmaxCodes = 256;
// Pairs and copies under way share memory: each pair, in its 32 banks, begins a line of 256 bytes, so that one
// instruction makes its address of the byte and the lane; the other half is that of a row of a step.
constexpr int kLine = 256;
constexpr int kWarpBytes = kTile * kLine;
constexpr int kStageBytes = kWarps * kWarpBytes;
static_assert(kStages * kStageBytes <= kPairs * kLine && kStep / 2 == kLine / 2);
// Of a block: what a large card has with the largest of heads.
constexpr std::int64_t kMostTiles = 128;
constexpr std::int64_t kMostTilesRows = 512;  // times rows of a
constexpr std::int64_t kRowPad = 8;           // elements that put rows of a into other banks

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
    return (a + b - 1) / b;
}

// Shared memory behind pairs and copies, in order.
struct Layout {
    std::int64_t map = 0, continued = 0, sums = 0, rows = 0, bytes = 0;
};
constexpr Layout layout_of(std::int64_t m, std::int64_t k, std::int64_t tiles) {
    Layout at;
    at.map = kPairs * kLine;
    at.continued = at.map + kAbsmaxCodes * 4;
    at.sums = at.continued + kWarps * kTile * m * 4;
    at.rows = at.sums + tiles * kTile * m * 4;
    at.bytes = at.rows + m * ((k + kStep - 1) / kStep * kStep + kRowPad) * 2;
    return at;
}

constexpr std::int64_t kMostShared = 98 << 10;  // a block's, of the smaller cards

inline bool takes_weight(const QuantizedWeight& weight) {
    constexpr std::int64_t kMost = std::int64_t{1} << 30;
    return is_four_bit(weight.format) && weight.columns % 32 == 0 && weight.columns > 0 &&
           weight.columns <= kMost && weight.rows <= kMost &&
           (weight.rows + kTile) * weight.columns < std::int64_t{1} << 32;
}

}  // namespace garam::cuda::quantized_row
