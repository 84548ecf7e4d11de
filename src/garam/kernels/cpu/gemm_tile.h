// Tiles of the matrix product: all sums of a few rows and columns over a block of k, in registers.
#pragma once

#include "garam/kernels/cpu/gemm_pack.h"

GARAM_KERNELS_BEGIN

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
    const uint32_t* b;      // words of its columns
    int64_t b_step;         // words from one step to the next
    int64_t b_panel;        // … from one panel to the next
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
[[gnu::noinline, maybe_unused]] void store_edge(const TileOutput& o, const float* sums,
                                                int64_t rows, int64_t width) {
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
    if (!out.transpose_c && in.steps > 16) prefetch_output<kM, kN>(out);
    // A pointer for every third row: the others are reached by its address and the pitch.
    constexpr int kGroups = (kM + 2) / 3;
    const int64_t a_row = in.a_row;
    const int64_t a_step = in.a_step;
    const char* rows[kGroups];
#pragma GCC unroll 5
    for (int group = 0; group < kGroups; ++group)
        rows[group] = in.a + 3 * group * a_row;
    const uint32_t* b = in.b;
    const int64_t b_step = in.b_step;
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
        b += b_step;
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

GARAM_KERNELS_END
