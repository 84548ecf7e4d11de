// The matrix product of one block of c, for every element type and instruction set.
//
// Both operands are packed into 32-bit words, one word a step of k: an fp32 value, or a pair of bf16
// where the processor multiplies pairs. The layout follows Goto and van de Geijn (Anatomy of
// High-Performance Matrix Multiplication, 2008), with a standing in the first-level cache and b
// streaming from the second:
//
//   for blocks of k (at most kDepth steps)
//     pack all columns: panels of 2 * kLanes columns, in each one row of words a step
//     for tiles of at most kTileRows rows
//       pack the rows of a, unless they serve as they lie
//       for panels: the tile's sums in registers over the block
//
// An element's value is ((s1 + s2) + s3) …, s_i being the i-th block's sum in the order of k, each
// from zero; the blocks' limits depend on k only. So it has the same bits wherever the element lies
// in its block and however c is cut into blocks. What pads a panel never meets a stored element.
#pragma once

#include "garam/kernels/cpu/simd.h"

#if defined(__FMA__)
#include <immintrin.h>
#endif

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

// a * b + c, rounded once where the instruction set can. Said so rather than left to the compiler,
// which may fuse in one copy of a function and not in another.
inline Vec multiply_add(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
    return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__ARM_FEATURE_FMA)
    for (int lane = 0; lane < kLanes; ++lane)
        c[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
    return c;
#else
    return c + a * b;
#endif
}
inline float multiply_add(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return __builtin_fmaf(a, b, c);
#else
    return c + a * b;
#endif
}

// The first `count` elements, zero beyond; any count below 0 is 0.
inline Vec load_some(const float* p, int64_t count) {
    if (count >= kLanes) return load(p, Full{});
#if defined(__AVX512F__)
    const auto mask = static_cast<__mmask16>(count > 0 ? (1u << count) - 1 : 0);
    return (Vec)_mm512_maskz_loadu_ps(mask, p);
#else
    return load(p, Tail{count});
#endif
}
inline Vec load_some(const Bf16* p, int64_t count) {
    if (count >= kLanes) return load(p, Full{});
#if defined(__AVX512F__)
    const auto mask = static_cast<__mmask16>(count > 0 ? (1u << count) - 1 : 0);
    return widen((HalfVec)_mm256_maskz_loadu_epi16(mask, p));
#else
    return load(p, Tail{count});
#endif
}

// How elements become words. A source of words gives kLanes of them, zero beyond the operand:
// `along` k at element `p` of a row, `across` k at neighbouring columns of row p (and p + 1).
template <class T>
struct SingleSteps {
    using Element = T;
    static constexpr int64_t kElements = 1;  // of k in a word

    static BitVec along(const T* row, int64_t p, int64_t k) {
        return bits_of<BitVec>(load_some(row + p, k - p));
    }
    static BitVec across(const T* x, int64_t pitch, int64_t p, int64_t, int64_t columns) {
        return bits_of<BitVec>(load_some(x + p * pitch, columns));
    }
    static Vec step(Vec sum, uint32_t a, BitVec b) {
        return multiply_add(splat(bits_of<float>(a)), bits_of<Vec>(b), sum);
    }
};

#if defined(__AVX512BF16__)
// Pairs are summed as the instruction does: both products in one step, subnormals as zero.
struct PairSteps {
    using Element = Bf16;
    static constexpr int64_t kElements = 2;

    static BitVec along(const Bf16* row, int64_t p, int64_t k) {
        if (p + 2 * kLanes <= k) {
            BitVec words;
            __builtin_memcpy(&words, row + p, sizeof(words));
            return words;
        }
        const auto mask = static_cast<__mmask32>(k > p ? (1ull << (k - p)) - 1 : 0);
        return (BitVec)_mm512_maskz_loadu_epi16(mask, row + p);
    }
    static BitVec across(const Bf16* x, int64_t pitch, int64_t p, int64_t k, int64_t columns) {
        const BitVec low = bits_of<BitVec>(load_some(x + p * pitch, columns)) >> 16;
        if (p + 1 >= k) return low;
        return low | bits_of<BitVec>(load_some(x + (p + 1) * pitch, columns));
    }
    static Vec step(Vec sum, uint32_t a, BitVec b) {
        return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(static_cast<int>(a)), (__m512bh)b);
    }
};
#endif

// --- packing -----------------------------------------------------------------------------------

// Rows become columns: first within each 4 x 4 words, then the 4 x 4 blocks by log2(kLanes / 4)
// rounds that part even from odd ones. All shuffles are ones that processors have.
inline void transpose_words(BitVec (&x)[kLanes]) {
    BitVec low{}, high{}, low_pairs{}, high_pairs{}, even{}, odd{};
    for (int lane = 0; lane < kLanes; ++lane) {
        const uint32_t block = lane / 4, at = lane % 4;
        low[lane] = 4 * block + at / 2 + at % 2 * kLanes;
        high[lane] = low[lane] + 2;
        low_pairs[lane] = 4 * block + at % 2 + at / 2 * kLanes;
        high_pairs[lane] = low_pairs[lane] + 2;
        even[lane] = 8 * block + at;  // the second operand's lanes follow the first's
        odd[lane] = even[lane] + 4;
    }
    constexpr int kBlocks = kLanes / 4;
    BitVec y[kLanes];  // [column of a block][block of rows]
#pragma GCC unroll 4
    for (int block = 0; block < kBlocks; ++block) {
        const BitVec* const rows = x + 4 * block;
        const BitVec a = __builtin_shuffle(rows[0], rows[1], low);
        const BitVec b = __builtin_shuffle(rows[0], rows[1], high);
        const BitVec c = __builtin_shuffle(rows[2], rows[3], low);
        const BitVec d = __builtin_shuffle(rows[2], rows[3], high);
        y[block] = __builtin_shuffle(a, c, low_pairs);
        y[kBlocks + block] = __builtin_shuffle(a, c, high_pairs);
        y[2 * kBlocks + block] = __builtin_shuffle(b, d, low_pairs);
        y[3 * kBlocks + block] = __builtin_shuffle(b, d, high_pairs);
    }
#pragma GCC unroll 4
    for (int column = 0; column < 4; ++column) {
        BitVec* const blocks = y + column * kBlocks;
#pragma GCC unroll 2
        for (int round = 1; round < kBlocks; round *= 2) {
            BitVec next[kBlocks];
#pragma GCC unroll 2
            for (int i = 0; i < kBlocks / 2; ++i) {
                next[i] = __builtin_shuffle(blocks[2 * i], blocks[2 * i + 1], even);
                next[i + kBlocks / 2] = __builtin_shuffle(blocks[2 * i], blocks[2 * i + 1], odd);
            }
#pragma GCC unroll 4
            for (int i = 0; i < kBlocks; ++i)
                blocks[i] = next[i];
        }
#pragma GCC unroll 4
        for (int block = 0; block < kBlocks; ++block)
            x[4 * block + column] = blocks[block];
    }
}

// A range of k in steps, and all of k in elements.
struct Depth {
    int64_t first, steps;
    int64_t k;
};

// Columns of op(b) [k, n] where b lies [k, n].
template <class Steps>
void pack_columns(Rows b, Depth depth, int64_t n, uint32_t* out) {
    using Element = typename Steps::Element;
    const Element* const in = static_cast<const Element*>(b.data);
    for (int64_t step = 0; step < depth.steps; ++step) {
        const int64_t p = (depth.first + step) * Steps::kElements;
        int64_t panel = 0;
        for (; panel + kPanel <= n; panel += kPanel) {
            uint32_t* const to = out + panel * depth.steps + step * kPanel;
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
            __builtin_memcpy(out + panel * depth.steps + step * width + part, &words,
                             sizeof(words));
        }
    }
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
            if (columns >= kLanes && p + kLanes * Steps::kElements <= depth.k) {
#pragma GCC unroll 16
                for (int i = 0; i < kLanes; ++i) {
                    words[i] = Steps::along(rows + i * b.pitch, p, p + kLanes * Steps::kElements);
                    __builtin_prefetch(rows + (i + kLanes) * b.pitch + p);
                }
            } else {
#pragma GCC unroll 16
                for (int i = 0; i < kLanes; ++i)
                    words[i] =
                        i < columns ? Steps::along(rows + i * b.pitch, p, depth.k) : BitVec{};
            }
            transpose_words(words);
            const int64_t count = depth.steps - step;
#pragma GCC unroll 16
            for (int i = 0; i < kLanes; ++i)
                if (i < count)
                    __builtin_memcpy(to + (step + i) * width, &words[i], sizeof(words[i]));
        }
    }
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

// --- tiles -------------------------------------------------------------------------------------

inline HalfVec rounded(Vec x) {
#if defined(__AVX512BF16__)
    return (HalfVec)_mm512_cvtneps_pbh((__m512)x);
#else
    return narrow(x);
#endif
}

// What a tile is made of.
struct TileInput {
    const char* a;          // words of its rows
    int64_t a_row, a_step;  // in bytes
    const uint32_t* b;      // its first panel
    int64_t b_panel;        // words from one panel to the next
    int64_t steps;
};

// Where a tile's sums go.
struct TileOutput {
    float* sums;  // of the blocks of k before, and for those to come
    int64_t sums_pitch;
    bool first, last;  // block of k
    void* c;
    int64_t c_pitch;
    int64_t columns;  // of c that exist
    bool transpose_c, bf16, accumulate;
    float alpha;
};

inline Vec result(const TileOutput& o, Vec sum, Vec before) {
    return multiply_add(splat(o.alpha), sum, before);
}
template <class T, class Lanes>
inline Vec held(const TileOutput& o, const T* c, Lanes lanes) {
    return o.accumulate ? load(c, lanes) : Vec{};
}

// A tile at the last columns of c, or of a c that lies transposed: sums row after row, at `width`.
[[gnu::noinline]] void store_edge(const TileOutput& o, const float* sums, int64_t rows,
                                  int64_t width) {
    const int64_t columns = o.columns < width ? o.columns : width;
    if (o.transpose_c) {
        for (int64_t column = 0; column < columns; ++column) {
            float* const c = static_cast<float*>(o.c) + column * o.c_pitch;
            for (int64_t row = 0; row < rows; ++row)
                c[row] =
                    multiply_add(o.alpha, sums[row * width + column], o.accumulate ? c[row] : 0.0f);
        }
        return;
    }
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t column = 0; column < columns; column += kLanes) {
            const Tail tail{columns - column < kLanes ? columns - column : kLanes};
            const Vec sum = load(sums + row * width + column, Full{});
            if (o.bf16) {
                Bf16* const c = static_cast<Bf16*>(o.c) + row * o.c_pitch + column;
                const HalfVec h = rounded(result(o, sum, held(o, c, tail)));
                for (int64_t i = 0; i < tail.lanes; ++i)
                    c[i].bits = h[i];
            } else {
                float* const c = static_cast<float*>(o.c) + row * o.c_pitch + column;
                store(c, result(o, sum, held(o, c, tail)), tail);
            }
        }
    }
}

template <int kM, int kN>
inline void finish_tile(const TileOutput& o, Vec (&sums)[kM][kN]) {
    const auto each = [&](const auto& body) {
#pragma GCC unroll 16
        for (int i = 0; i < kM; ++i)
#pragma GCC unroll 8
            for (int j = 0; j < kN; ++j)
                body(i, j * kLanes, sums[i][j]);
    };
    if (!o.first)
        each([&](int i, int column, Vec& sum) {
            sum = load(o.sums + i * o.sums_pitch + column, Full{}) + sum;
        });
    if (!o.last) {
        each([&](int i, int column, const Vec& sum) {
            store(o.sums + i * o.sums_pitch + column, sum, Full{});
        });
        return;
    }
    if (o.transpose_c || o.columns < kN * kLanes) {
        float edge[kM * kN * kLanes];
        each([&](int i, int column, const Vec& sum) {
            store(edge + i * kN * kLanes + column, sum, Full{});
        });
        store_edge(o, edge, kM, kN * kLanes);
    } else if (o.bf16) {
        each([&](int i, int column, const Vec& sum) {
            Bf16* const c = static_cast<Bf16*>(o.c) + i * o.c_pitch + column;
            const HalfVec h = rounded(result(o, sum, held(o, c, Full{})));
            __builtin_memcpy(c, &h, sizeof(h));
        });
    } else {
        each([&](int i, int column, const Vec& sum) {
            float* const c = static_cast<float*>(o.c) + i * o.c_pitch + column;
            store(c, result(o, sum, held(o, c, Full{})), Full{});
        });
    }
}

// The lines that finish_tile will touch.
template <int kM, int kN>
inline void prefetch_output(const TileOutput& o) {
    const int64_t bytes = o.last && o.bf16 ? 2 : 4;
    const char* const to = static_cast<const char*>(o.last ? o.c : o.sums);
    const int64_t pitch = (o.last ? o.c_pitch : o.sums_pitch) * bytes;
    const int64_t width = kN * kLanes * bytes - 1;
#pragma GCC unroll 16
    for (int i = 0; i < kM; ++i) {
        __builtin_prefetch(to + i * pitch, 1);
        __builtin_prefetch(to + i * pitch + width, 1);
    }
    if (o.last && !o.first) {
#pragma GCC unroll 16
        for (int i = 0; i < kM; ++i) {
            __builtin_prefetch(o.sums + i * o.sums_pitch);
            __builtin_prefetch(o.sums + i * o.sums_pitch + kN * kLanes - 1);
        }
    }
}

// Floor: one multiply-add of a vector a row, vector of columns and step.
template <class Steps, int kM, int kN>
void multiply_tile(const TileInput& in, const TileOutput& out) {
    Vec sums[kM][kN];
#pragma GCC unroll 16
    for (int i = 0; i < kM; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < kN; ++j)
            sums[i][j] = Vec{};
    if (!out.transpose_c) prefetch_output<kM, kN>(out);
    // A pointer for every third row: the others are reached by its address and the pitch.
    constexpr int kGroups = (kM + 2) / 3;
    const int64_t a_row = in.a_row;
    const int64_t a_step = in.a_step;
    const char* rows[kGroups];
#pragma GCC unroll 5
    for (int group = 0; group < kGroups; ++group)
        rows[group] = in.a + 3 * group * a_row;
    const uint32_t* b = in.b;
    const int64_t b_panel = in.b_panel;
    for (int64_t step = 0; step < in.steps; ++step) {
        BitVec columns[kN];
#pragma GCC unroll 8
        for (int j = 0; j < kN; ++j)
            __builtin_memcpy(&columns[j], b + j / 2 * b_panel + j % 2 * kLanes, sizeof(BitVec));
#pragma GCC unroll 16
        for (int i = 0; i < kM; ++i) {
            uint32_t word;
            __builtin_memcpy(&word, rows[i / 3] + i % 3 * a_row, sizeof(word));
#pragma GCC unroll 8
            for (int j = 0; j < kN; ++j)
                sums[i][j] = Steps::step(sums[i][j], word, columns[j]);
        }
#pragma GCC unroll 5
        for (int group = 0; group < kGroups; ++group) {
            rows[group] += a_step;
            asm("" : "+r"(rows[group]));  // stays in a register of its own
        }
        b += kN < 2 ? kLanes : kPanel;
    }
    finish_tile(out, sums);
}

using TileFunction = void (*)(const TileInput&, const TileOutput&);

// Tiles of so few rows that their sums would wait for each other take several panels at once.
#if defined(__AVX512F__)
constexpr int kLowTileRows = 3;
constexpr int kLowTilePanels = 4;
#else
constexpr int kLowTileRows = kTileRows / 2;
constexpr int kLowTilePanels = 2;
#endif

template <class Steps>
struct TileFunctions {
    TileFunction of[kTileRows + 1][3];  // [rows][vectors of columns]
    TileFunction low[kLowTileRows + 1];

    template <int kM>
    constexpr void fill() {
        of[kM][1] = multiply_tile<Steps, kM, 1>;
        of[kM][2] = multiply_tile<Steps, kM, 2>;
        if constexpr (kM <= kLowTileRows) low[kM] = multiply_tile<Steps, kM, 2 * kLowTilePanels>;
        if constexpr (kM > 1) fill<kM - 1>();
    }
    constexpr TileFunctions() : of{}, low{} { fill<kTileRows>(); }
};
template <class Steps>
constexpr TileFunctions<Steps> kTileFunctions;

// --- blocks ------------------------------------------------------------------------------------

constexpr int64_t steps_in_block(int64_t steps) {
    const int64_t blocks = (steps + kDepth - 1) / kDepth;
    return (steps + blocks - 1) / blocks;
}
constexpr int64_t padded(int64_t columns) {
    return (columns + kLanes - 1) / kLanes * kLanes;
}

constexpr int64_t aligned(int64_t words) {
    return (words + 15) / 16 * 16;
}

constexpr int64_t packed_tiles(int64_t m) {
    const int64_t tiles = (m + kTileRows - 1) / kTileRows;
    return tiles < kTilesAtOnce ? tiles : kTilesAtOnce;
}

template <class Steps>
int64_t matmul_scratch(int64_t m, int64_t n, int64_t elements, int64_t k) {
    const int64_t steps = (k + Steps::kElements - 1) / Steps::kElements;
    const int64_t depth = steps < kDepth ? steps : kDepth;
    const int64_t sums = steps > kDepth ? elements : 0;
    return 4 * (aligned(depth * padded(n)) + packed_tiles(m) * kTileWords + sums);
}

template <class Steps>
void matmul_block(const MatmulBlock& block, void* scratch) {
    using Element = typename Steps::Element;
    const int64_t m = block.m, n = block.n;
    const int64_t steps = (block.k + Steps::kElements - 1) / Steps::kElements;
    const int64_t depth = steps_in_block(steps);
    uint32_t* const columns = static_cast<uint32_t*>(scratch);
    uint32_t* const tile_rows = columns + aligned(depth * padded(n));
    float* const sums = reinterpret_cast<float*>(tile_rows + packed_tiles(m) * kTileWords);

    // Rows of words already, unless the last word is half a pair. Rows that are apart by whole pages
    // meet in the same sets of the first-level cache.
    const int64_t a_pitch_bytes = block.a.pitch * static_cast<int64_t>(sizeof(Element));
    const bool in_place = Steps::kElements * sizeof(Element) == 4 && !block.transpose_a &&
                          block.k % Steps::kElements == 0 && a_pitch_bytes % 4096 != 0;

    TileOutput out;
    out.sums_pitch = padded(n);
    out.c_pitch = block.c.pitch;
    out.transpose_c = block.transpose_c;
    out.bf16 = block.c_is_bf16;
    out.accumulate = block.accumulate;
    out.alpha = block.alpha;
    const int64_t c_bytes = block.c_is_bf16 ? 2 : 4;

    for (int64_t first = 0; first < steps; first += depth) {
        const Depth part{first, steps - first < depth ? steps - first : depth, block.k};
        out.first = first == 0;
        out.last = first + part.steps == steps;
        if (block.transpose_b)
            pack_transposed_columns<Steps>(block.b, part, n, columns);
        else
            pack_columns<Steps>(block.b, part, n, columns);
        // Tiles of nearly the same height: one of few rows would leave the multipliers waiting.
        const int64_t tiles = (m + kTileRows - 1) / kTileRows;
        const auto first_row = [=](int64_t tile) { return m * tile / tiles; };
        for (int64_t tile = 0; tile < tiles; ++tile) {
            const int64_t row = first_row(tile);
            const int64_t height = first_row(tile + 1) - row;
            const Rows from{
                static_cast<Element*>(block.a.data) + row * (block.transpose_a ? 1 : block.a.pitch),
                block.a.pitch};
            TileInput in{reinterpret_cast<const char*>(tile_rows),
                         4 * kRowPitch,
                         4,
                         columns,
                         kPanel * part.steps,
                         part.steps};
            if (in_place) {
                in.a = static_cast<const char*>(from.data) + first * 4;
                in.a_row = a_pitch_bytes;
            } else if (block.transpose_a) {
                const int64_t at = tile % kTilesAtOnce;
                if (at == 0) {
                    const int64_t left = tiles - tile;
                    pack_transposed_rows<Steps>(
                        block.a, part, m, left < kTilesAtOnce ? left : kTilesAtOnce,
                        [&](int64_t next) { return first_row(tile + next); }, tile_rows);
                }
                in.a += 4 * at * kTileWords;
                in.a_row = 4;
                in.a_step = 4 * kLanes;
            } else {
                pack_rows<Steps>(from, part, height, tile_rows);
            }
            int64_t width = 0;
            for (int64_t column = 0; column < n; column += width) {
                in.b = columns + column * part.steps;
                out.columns = n - column;
                out.sums = sums + row * out.sums_pitch + column;
                const int64_t at =
                    block.transpose_c ? column * out.c_pitch + row : row * out.c_pitch + column;
                out.c = static_cast<char*>(block.c.data) + at * c_bytes;
                width = kPanel;
                TileFunction multiply =
                    kTileFunctions<Steps>.of[height][out.columns > kLanes ? 2 : 1];
                if (height <= kLowTileRows && out.columns >= kLowTilePanels * kPanel) {
                    width = kLowTilePanels * kPanel;
                    multiply = kTileFunctions<Steps>.low[height];
                }
                multiply(in, out);
            }
        }
    }
}

template <class Steps>
constexpr MatmulKernel kMatmulKernel{matmul_block<Steps>, matmul_scratch<Steps>};

GARAM_KERNELS_END
