// Few rows times op(b) where b lies [n, k], as in decoding: bound by reading b once. Its words are
// transposed in registers and multiplied at once, in the order of k as tiles do: the same bits.
#pragma once

#include "garam/kernels/cpu/gemm_tile.h"

GARAM_KERNELS_BEGIN

constexpr int kStreamRows = kTileRows < 8 ? kTileRows : 8;

// sums += the words of `a` (rows in.a_row apart) times `count` vectors of words.
template <class Steps, int kM>
inline void multiply_words(const char* a, int64_t a_row, const BitVec* words, int count,
                           Vec (&sums)[kM]) {
    constexpr int kGroups = (kM + 2) / 3;
    const char* rows[kGroups];  // as in multiply_tile
#pragma GCC unroll 3
    for (int group = 0; group < kGroups; ++group) {
        rows[group] = a + 3 * group * a_row;
        asm("" : "+r"(rows[group]));
    }
#pragma GCC unroll 16
    for (int s = 0; s < count; ++s) {
#pragma GCC unroll 8
        for (int i = 0; i < kM; ++i) {
            uint32_t word;
            __builtin_memcpy(&word, rows[i / 3] + i % 3 * a_row + 4 * s, sizeof(word));
            sums[i] = Steps::step(sums[i], word, words[s]);
        }
    }
}

// in.a_step is 4; in.b is not used: the columns are those of `b` from its first row on.
template <class Steps, int kM, int kN>
void multiply_stream(const TileInput& in, Rows b, Depth depth, const TileOutput& out) {
    using Element = typename Steps::Element;
    const Element* const columns = static_cast<const Element*>(b.data);
    const char* a = in.a;
    const int64_t a_row = in.a_row;
    Vec sums[kN][kM];
#pragma GCC unroll 2
    for (int j = 0; j < kN; ++j)
#pragma GCC unroll 8
        for (int i = 0; i < kM; ++i)
            sums[j][i] = Vec{};
    for (int64_t step = 0; step < depth.steps; step += kLanes) {
        const int64_t count = depth.steps - step;
#pragma GCC unroll 2
        for (int j = 0; j < kN; ++j) {
            BitVec words[kLanes];
            load_transposed<Steps, 2>(columns + j * kLanes * b.pitch, b.pitch,
                                      (depth.first + step) * Steps::kElements, depth.k,
                                      out.columns - j * kLanes, words);
            if (count >= kLanes) {
                multiply_words<Steps, kM>(a, a_row, words, kLanes, sums[j]);
            } else {
                BitVec rest[kLanes];
#pragma GCC unroll 16
                for (int s = 0; s < kLanes; ++s)
                    rest[s] = words[s];
                asm("" : "+m"(rest));  // an array in memory: indexed by a variable
                for (int s = 0; s < count; ++s)
                    multiply_words<Steps, kM>(a + 4 * s, a_row, rest + s, 1, sums[j]);
            }
        }
        a += 4 * kLanes;
    }
    Vec tile[kM][kN];
#pragma GCC unroll 8
    for (int i = 0; i < kM; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < kN; ++j)
            tile[i][j] = sums[j][i];
    finish_tile(out, tile);
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
