// Packing for the matrix product: parts of its operands copied in the order in which tiles read them.
#pragma once

#include "garam/kernels/cpu/gemm_words.h"

GARAM_KERNELS_BEGIN

// 2 * kTileRows sums, two vectors of b, one of a and one spare fill the registers.
#if defined(__AVX512F__)
constexpr int kTileRows = 14;
#elif defined(__AVX2__)
constexpr int kTileRows = 6;
#else
constexpr int kTileRows = 4;
#endif
static_assert(kTileRows <= kLanes);
constexpr int64_t kPanel = 2 * kLanes;
static_assert(kPanel <= kMatmulPanel);

constexpr int64_t kDepth = 320;  // a tile's rows take 18 KB
// Rows of a packed tile: packing writes whole vectors; an odd number of cache lines keeps the rows
// apart in the first-level cache.
constexpr int64_t kRowPitch = kDepth + 16;
constexpr int64_t kTileWords = kLanes * kRowPitch;
// Tiles whose rows are packed at once where a lies transposed, so that cache lines are used in full.
constexpr int64_t kTilesAtOnce = 4;

// A range of k in steps, and all of k in elements.
struct Depth {
    int64_t first, steps;
    int64_t k;
};

// Columns of op(b) [k, n] where b lies [k, n], into the steps from `begin` on of panels of `steps`.
template <class Steps>
void pack_columns(Rows b, Depth depth, int64_t n, int64_t begin, int64_t steps, uint32_t* out) {
    using Element = typename Steps::Element;
    const Element* const in = static_cast<const Element*>(b.data);
    for (int64_t step = begin; step < begin + depth.steps; ++step) {
        const int64_t p = (depth.first + step - begin) * Steps::kElements;
        int64_t panel = 0;
        for (; panel + kPanel <= n; panel += kPanel) {
            uint32_t* const to = out + panel * steps + step * kPanel;
#pragma GCC unroll 2
            for (int64_t part = 0; part < kPanel; part += kLanes) {
                const BitVec words = Steps::across(in + panel + part, b.pitch, p, depth.k, kLanes);
                __builtin_memcpy(to + part, &words, sizeof(words));
            }
        }
        const int64_t width = n - panel > kLanes ? kPanel : kLanes;
        for (int64_t part = 0; panel + part < n; part += kLanes) {
            const BitVec words =
                Steps::across(in + panel + part, b.pitch, p, depth.k, n - panel - part);
            __builtin_memcpy(out + panel * steps + step * width + part, &words, sizeof(words));
        }
    }
}

// kLanes columns of op(b) where b lies [n, k], from element `p` of k on: one vector a step. Fetches
// the group of columns that is kAhead groups further on.
template <class Steps, int kAhead>
inline void load_transposed(const typename Steps::Element* b, int64_t pitch, int64_t p, int64_t k,
                            int64_t columns, BitVec (&words)[kLanes]) {
    constexpr int64_t kAll = kLanes * Steps::kElements;
    if (columns >= kLanes && p + kAll <= k) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
            words[i] = Steps::along(b + i * pitch, p, p + kAll);
            __builtin_prefetch(b + (i + kAhead * kLanes) * pitch + p);
        }
    } else {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i)
            words[i] = i < columns ? Steps::along(b + i * pitch, p, k) : BitVec{};
    }
    transpose_words(words);
}

// Columns of op(b) [k, n] where b lies [n, k].
template <class Steps>
void pack_transposed_columns(Rows b, Depth depth, int64_t n, uint32_t* out) {
    using Element = typename Steps::Element;
    const Element* const in = static_cast<const Element*>(b.data);
    for (int64_t column = 0; column < n; column += kLanes) {
        const int64_t panel = column / kPanel * kPanel;
        const int64_t width = n - panel > kLanes ? kPanel : kLanes;
        uint32_t* const to = out + panel * depth.steps + column - panel;
        const Element* const rows = in + column * b.pitch;
        const int64_t columns = n - column;
        for (int64_t step = 0; step < depth.steps; step += kLanes) {
            const int64_t p = (depth.first + step) * Steps::kElements;
            BitVec words[kLanes];
            load_transposed<Steps, 1>(rows, b.pitch, p, depth.k, columns, words);
            const int64_t count = depth.steps - step;
#pragma GCC unroll 16
            for (int i = 0; i < kLanes; ++i)
                if (i < count)
                    __builtin_memcpy(to + (step + i) * width, &words[i], sizeof(words[i]));
        }
    }
}

// Rows [row, row + rows) of a coded b as it lies, from `column` on, decoded. As many rows further on are fetched.
template <class Element>
inline void decode_rows(const MatmulBlock& block, int64_t row, int64_t rows, int64_t column,
                        int64_t columns, Element* out, int64_t pitch) {
    const int64_t first = block.first_coded + row * block.b.pitch + column;
    for (int64_t i = 0; i < rows; ++i)
        block.decode(*block.coded, first + i * block.b.pitch, columns, rows * block.b.pitch,
                     out + i * pitch);
}

// A tile's rows of op(a) where a lies [m, k]: row after row, at kRowPitch.
template <class Steps>
void pack_rows(Rows a, Depth depth, int64_t rows, uint32_t* out) {
    using Element = typename Steps::Element;
    for (int64_t row = 0; row < rows; ++row) {
        const Element* const in = static_cast<const Element*>(a.data) + row * a.pitch;
        uint32_t* const to = out + row * kRowPitch;
        for (int64_t step = 0; step < depth.steps; step += kLanes) {
            const BitVec words = Steps::along(in, (depth.first + step) * Steps::kElements, depth.k);
            __builtin_memcpy(to + step, &words, sizeof(words));
        }
    }
}

// Rows of some tiles of op(a) [m, k] where a lies [k, m]: tile after tile, in each kLanes words a
// step. first_row(tile) is a tile's first row.
template <class Steps, class FirstRow>
void pack_transposed_rows(Rows a, Depth depth, int64_t m, int64_t tiles, const FirstRow& first_row,
                          uint32_t* out) {
    using Element = typename Steps::Element;
    for (int64_t step = 0; step < depth.steps; ++step) {
        const int64_t p = (depth.first + step) * Steps::kElements;
        for (int64_t tile = 0; tile < tiles; ++tile) {
            const int64_t row = first_row(tile);
            const BitVec words = Steps::across(static_cast<const Element*>(a.data) + row, a.pitch,
                                               p, depth.k, m - row);
            __builtin_memcpy(out + tile * kTileWords + step * kLanes, &words, sizeof(words));
        }
    }
}

GARAM_KERNELS_END
