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
//       pack the rows of a, at kRowPitch
//       for panels: the tile's sums in registers over the block
//
// An element's value is ((s1 + s2) + s3) …, s_i being the i-th block's sum in the order of k, each
// from zero; the blocks' limits depend on k only. So it has the same bits wherever the element lies
// in its block and however c is cut into blocks. What pads a panel never meets a stored element.
#pragma once

#include "garam/kernels/cpu/simd.h"

#if defined(__AVX512BF16__)
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
constexpr int64_t kPanel = 2 * kLanes;
static_assert(kPanel <= kMatmulPanel);

constexpr int64_t kDepth = 320;  // a tile's rows take 18 KB
// Rows of a packed tile: packing writes whole vectors; an odd number of cache lines keeps the rows
// apart in the first-level cache.
constexpr int64_t kRowPitch = kDepth + 16;

// How elements become words. A source of words gives kLanes of them, zero beyond the operand:
// `along` k at element `p` of a row, `across` k at neighbouring columns of rows p, p + 1, …
template <class T>
struct SingleSteps {
    using Element = T;
    static constexpr int64_t kElements = 1;  // of k in a word

    static BitVec along(const T* row, int64_t p, int64_t k) {
        if (p + kLanes <= k) return bits_of<BitVec>(load(row + p, Full{}));
        return bits_of<BitVec>(load(row + p, Tail{k - p}));
    }
    static BitVec across(const T* x, int64_t pitch, int64_t p, int64_t, int64_t columns) {
        const T* const row = x + p * pitch;
        if (columns >= kLanes) return bits_of<BitVec>(load(row, Full{}));
        return bits_of<BitVec>(load(row, Tail{columns}));
    }
    static Vec multiply_add(Vec sum, uint32_t a, BitVec b) {
        return sum + splat(bits_of<float>(a)) * bits_of<Vec>(b);
    }
};

#if defined(__AVX512BF16__)
// Pairs are summed as the instruction does: both products in one step, subnormals as zero.
struct PairSteps {
    using Element = Bf16;
    static constexpr int64_t kElements = 2;

    static BitVec along(const Bf16* row, int64_t p, int64_t k) {
        BitVec words{};
        if (p + 2 * kLanes <= k)
            __builtin_memcpy(&words, row + p, sizeof(words));
        else if (p < k)
            __builtin_memcpy(&words, row + p, static_cast<std::size_t>(2 * (k - p)));
        return words;
    }
    static BitVec widened(const Bf16* p, int64_t columns) {
        return bits_of<BitVec>(columns >= kLanes ? load(p, Full{}) : load(p, Tail{columns}));
    }
    static BitVec across(const Bf16* x, int64_t pitch, int64_t p, int64_t k, int64_t columns) {
        const BitVec low = widened(x + p * pitch, columns) >> 16;
        return p + 1 < k ? low | widened(x + (p + 1) * pitch, columns) : low;
    }
    static Vec multiply_add(Vec sum, uint32_t a, BitVec b) {
        return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(static_cast<int>(a)), (__m512bh)b);
    }
};
#endif

// --- packing -----------------------------------------------------------------------------------

// Rows become columns: log2(kLanes) perfect shuffles of the rows.
inline void transpose_words(BitVec (&x)[kLanes]) {
    IntVec lower{}, upper{};  // a0 b0 a1 b1 …
    for (int lane = 0; lane < kLanes; ++lane) {
        lower[lane] = lane / 2 + lane % 2 * kLanes;
        upper[lane] = lower[lane] + kLanes / 2;
    }
#pragma GCC unroll 4
    for (int round = 1; round < kLanes; round *= 2) {
        BitVec y[kLanes];
#pragma GCC unroll 8
        for (int i = 0; i < kLanes / 2; ++i) {
            y[2 * i] = __builtin_shuffle(x[i], x[i + kLanes / 2], bits_of<BitVec>(lower));
            y[2 * i + 1] = __builtin_shuffle(x[i], x[i + kLanes / 2], bits_of<BitVec>(upper));
        }
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i)
            x[i] = y[i];
    }
}

// A range of k in steps, and all of k in elements.
struct Depth {
    int64_t first, steps;
    int64_t k;
};

// Columns of op(b) [k, n]; `transposed`: b lies [n, k].
template <class Steps>
void pack_columns(Rows b, bool transposed, Depth depth, int64_t n, uint32_t* out) {
    using Element = typename Steps::Element;
    const Element* const in = static_cast<const Element*>(b.data);
    for (int64_t panel = 0; panel < n; panel += kPanel) {
        const int64_t width = n - panel > kLanes ? kPanel : kLanes;
        for (int64_t part = 0; part < width; part += kLanes) {
            const int64_t column = panel + part;
            const int64_t columns = n - column;
            uint32_t* const to = out + panel * depth.steps + part;
            if (!transposed) {
                for (int64_t step = 0; step < depth.steps; ++step) {
                    const BitVec words =
                        Steps::across(in + column, b.pitch, (depth.first + step) * Steps::kElements,
                                      depth.k, columns);
                    __builtin_memcpy(to + step * width, &words, sizeof(words));
                }
                continue;
            }
            const Element* const rows = in + column * b.pitch;
            for (int64_t step = 0; step < depth.steps; step += kLanes) {
                const int64_t p = (depth.first + step) * Steps::kElements;
                BitVec words[kLanes];
#pragma GCC unroll 16
                for (int i = 0; i < kLanes; ++i) {
                    words[i] =
                        i < columns ? Steps::along(rows + i * b.pitch, p, depth.k) : BitVec{};
                    __builtin_prefetch(rows + (i + kLanes) * b.pitch + p);
                }
                transpose_words(words);
                const int64_t count = depth.steps - step < kLanes ? depth.steps - step : kLanes;
                for (int i = 0; i < kLanes; ++i)
                    if (i < count)
                        __builtin_memcpy(to + (step + i) * width, &words[i], sizeof(words[i]));
            }
        }
    }
}

// The first `rows` rows of op(a) [m, k]; `transposed`: a lies [k, m].
template <class Steps>
void pack_rows(Rows a, bool transposed, Depth depth, int64_t rows, int64_t m, uint32_t* out) {
    using Element = typename Steps::Element;
    const Element* const in = static_cast<const Element*>(a.data);
    if (!transposed) {
        for (int64_t row = 0; row < rows; ++row) {
            for (int64_t step = 0; step < depth.steps; step += kLanes) {
                const BitVec words = Steps::along(in + row * a.pitch,
                                                  (depth.first + step) * Steps::kElements, depth.k);
                __builtin_memcpy(out + row * kRowPitch + step, &words, sizeof(words));
            }
        }
        return;
    }
    for (int64_t row = 0; row < rows; row += kLanes) {
        for (int64_t step = 0; step < depth.steps; step += kLanes) {
            BitVec words[kLanes];
#pragma GCC unroll 16
            for (int i = 0; i < kLanes; ++i) {
                const int64_t p = (depth.first + step + i) * Steps::kElements;
                words[i] =
                    p < depth.k ? Steps::across(in + row, a.pitch, p, depth.k, m - row) : BitVec{};
            }
            transpose_words(words);
#pragma GCC unroll 16
            for (int i = 0; i < kLanes; ++i)
                if (i < rows - row)
                    __builtin_memcpy(out + (row + i) * kRowPitch + step, &words[i],
                                     sizeof(words[i]));
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

// One expression for all paths: where the compiler fuses it, it does so in each.
inline Vec result(const TileOutput& o, Vec sum, Vec before) {
    return before + o.alpha * sum;
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
                c[row] = (o.accumulate ? c[row] : 0.0f) + o.alpha * sums[row * width + column];
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
#pragma GCC unroll 2
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
void multiply_tile(const char* a, int64_t a_pitch, const uint32_t* b, int64_t steps,
                   const TileOutput& out) {
    Vec sums[kM][kN];
#pragma GCC unroll 16
    for (int i = 0; i < kM; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < kN; ++j)
            sums[i][j] = Vec{};
    if (!out.transpose_c) prefetch_output<kM, kN>(out);
    // A pointer for every third row: the others are reached by its address and the pitch.
    constexpr int kGroups = (kM + 2) / 3;
    const char* rows[kGroups];
#pragma GCC unroll 5
    for (int group = 0; group < kGroups; ++group)
        rows[group] = a + 3 * group * a_pitch;
    for (int64_t step = 0; step < steps; ++step) {
        BitVec columns[kN];
#pragma GCC unroll 2
        for (int j = 0; j < kN; ++j)
            __builtin_memcpy(&columns[j], b + j * kLanes, sizeof(BitVec));
#pragma GCC unroll 16
        for (int i = 0; i < kM; ++i) {
            uint32_t word;
            __builtin_memcpy(&word, rows[i / 3] + i % 3 * a_pitch, sizeof(word));
#pragma GCC unroll 2
            for (int j = 0; j < kN; ++j)
                sums[i][j] = Steps::multiply_add(sums[i][j], word, columns[j]);
        }
#pragma GCC unroll 5
        for (int group = 0; group < kGroups; ++group) {
            rows[group] += sizeof(uint32_t);
            asm("" : "+r"(rows[group]));  // stays in a register of its own
        }
        b += kN * kLanes;
    }
    finish_tile(out, sums);
}

using TileFunction = void (*)(const char*, int64_t, const uint32_t*, int64_t, const TileOutput&);

template <class Steps>
struct TileFunctions {
    TileFunction of[kTileRows + 1][3];  // [rows][vectors of columns]

    template <int kM>
    constexpr void fill() {
        of[kM][1] = multiply_tile<Steps, kM, 1>;
        of[kM][2] = multiply_tile<Steps, kM, 2>;
        if constexpr (kM > 1) fill<kM - 1>();
    }
    constexpr TileFunctions() : of{} { fill<kTileRows>(); }
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

template <class Steps>
int64_t matmul_scratch(int64_t m, int64_t n, int64_t k) {
    const int64_t steps = (k + Steps::kElements - 1) / Steps::kElements;
    const int64_t depth = steps < kDepth ? steps : kDepth;
    const int64_t sums = steps > kDepth ? m * padded(n) : 0;
    return 4 * (aligned(depth * padded(n)) + kTileRows * kRowPitch + sums);
}

template <class Steps>
void matmul_block(const MatmulBlock& block, void* scratch) {
    using Element = typename Steps::Element;
    const int64_t m = block.m, n = block.n;
    const int64_t steps = (block.k + Steps::kElements - 1) / Steps::kElements;
    const int64_t depth = steps_in_block(steps);
    uint32_t* const columns = static_cast<uint32_t*>(scratch);
    uint32_t* const tile_rows = columns + aligned(depth * padded(n));
    float* const sums = reinterpret_cast<float*>(tile_rows + kTileRows * kRowPitch);

    // Rows of words already, unless the last word is half a pair. Rows that are apart by whole pages
    // meet in the same sets of the first-level cache.
    const bool in_place = Steps::kElements * sizeof(Element) == 4 && !block.transpose_a &&
                          block.k % Steps::kElements == 0 &&
                          block.a.pitch * static_cast<int64_t>(sizeof(Element)) % 2048 != 0;

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
        pack_columns<Steps>(block.b, block.transpose_b, part, n, columns);
        // Tiles of nearly the same height: one of few rows would leave the multipliers waiting.
        const int64_t tiles = (m + kTileRows - 1) / kTileRows;
        for (int64_t tile = 0; tile < tiles; ++tile) {
            const int64_t row = m * tile / tiles;
            const int64_t height = m * (tile + 1) / tiles - row;
            const Rows from{
                static_cast<Element*>(block.a.data) + row * (block.transpose_a ? 1 : block.a.pitch),
                block.a.pitch};
            const char* tile_a = reinterpret_cast<const char*>(tile_rows);
            int64_t tile_pitch = kRowPitch * 4;
            if (in_place) {
                tile_pitch = block.a.pitch * static_cast<int64_t>(sizeof(Element));
                tile_a = static_cast<const char*>(from.data) + first * 4;
            } else {
                pack_rows<Steps>(from, block.transpose_a, part, height, m - row, tile_rows);
            }
            for (int64_t panel = 0; panel < n; panel += kPanel) {
                out.columns = n - panel;
                out.sums = sums + row * out.sums_pitch + panel;
                const int64_t at =
                    block.transpose_c ? panel * out.c_pitch + row : row * out.c_pitch + panel;
                out.c = static_cast<char*>(block.c.data) + at * c_bytes;
                const TileFunction multiply =
                    kTileFunctions<Steps>.of[height][out.columns > kLanes ? 2 : 1];
                multiply(tile_a, tile_pitch, columns + panel * part.steps, part.steps, out);
            }
        }
    }
}

template <class Steps>
constexpr MatmulKernel kMatmulKernel{matmul_block<Steps>, matmul_scratch<Steps>};

GARAM_KERNELS_END
