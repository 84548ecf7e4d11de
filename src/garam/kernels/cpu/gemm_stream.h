// Few rows times op(b) where b lies [n, k], as in decoding: bound by reading b once. Its words are
// transposed in registers and multiplied at once, in the order of k as tiles do: the same bits.
#pragma once

#include "garam/kernels/cpu/gemm_tile.h"

GARAM_KERNELS_BEGIN

constexpr int kStreamRows = kTileRows < 8 ? kTileRows : 8;

// in.b is not used: the columns are those of `b` from its first row on.
template <class Steps, int kM, int kN>
void multiply_stream(const TileInput& in, Rows b, Depth depth, const TileOutput& out) {
    using Element = typename Steps::Element;
    const Element* const columns = static_cast<const Element*>(b.data);
    const char* const a = in.a;
    const int64_t a_row = in.a_row, a_step = in.a_step;
    Vec sums[kM][kN];
#pragma GCC unroll 8
    for (int i = 0; i < kM; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < kN; ++j)
            sums[i][j] = Vec{};
    for (int64_t step = 0; step < depth.steps; step += kLanes) {
        const int64_t count = depth.steps - step;
#pragma GCC unroll 2
        for (int j = 0; j < kN; ++j) {
            BitVec words[kLanes];
            load_transposed<Steps, 2>(columns + j * kLanes * b.pitch, b.pitch,
                                      (depth.first + step) * Steps::kElements, depth.k,
                                      out.columns - j * kLanes, words);
#pragma GCC unroll 16
            for (int s = 0; s < kLanes; ++s) {
                if (s >= count) break;
#pragma GCC unroll 8
                for (int i = 0; i < kM; ++i) {
                    uint32_t word;
                    __builtin_memcpy(&word, a + i * a_row + (step + s) * a_step, sizeof(word));
                    sums[i][j] = Steps::step(sums[i][j], word, words[s]);
                }
            }
        }
    }
    finish_tile(out, sums);
}

using StreamFunction = void (*)(const TileInput&, Rows, Depth, const TileOutput&);

template <class Steps>
struct StreamFunctions {
    StreamFunction of[kStreamRows + 1][3];  // [rows][vectors of columns]

    template <int kM>
    constexpr void fill() {
        of[kM][1] = multiply_stream<Steps, kM, 1>;
        of[kM][2] = multiply_stream<Steps, kM, 2>;
        if constexpr (kM > 1) fill<kM - 1>();
    }
    constexpr StreamFunctions() : of{} { fill<kStreamRows>(); }
};
template <class Steps>
constexpr StreamFunctions<Steps> kStreamFunctions;

GARAM_KERNELS_END
