// The register-tiled product that attention and the portable matmul are made of.
//
//   c [m, n] (+)= a [m, k] * b [k, n]
//
// a is read one element at a time with free strides (so a transpose costs nothing), b and c row by
// row in vectors; n is a multiple of kLanes. A tile of kTileRows x kTileVecs vectors of c stays in
// registers over all of k: per step kTileVecs loads of b serve kTileRows * kTileVecs multiply-adds.
#pragma once

#include "garam/kernels/cpu/simd.h"

GARAM_KERNELS_BEGIN

#if defined(__AVX512F__)
constexpr int kTileRows = 6;  // 24 sums + 4 of b + 1 of a of 32 registers
constexpr int kTileVecs = 4;
#elif defined(__AVX2__)
constexpr int kTileRows = 6;  // 12 sums + 2 of b + 1 of a of 16 registers
constexpr int kTileVecs = 2;
#else
constexpr int kTileRows = 4;  // 8 sums + 2 of b + 1 of a of 16 registers
constexpr int kTileVecs = 2;
#endif

struct GemmOperands {
    const float* a;
    int64_t a_row, a_column;  // strides
    const float* b;
    int64_t b_row;
    float* c;
    int64_t c_row;
};

template <int kM, int kN>
inline void gemm_tile(const GemmOperands& o, int64_t k, bool accumulate) {
    Vec sums[kM][kN];
#pragma GCC unroll 8
    for (int i = 0; i < kM; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < kN; ++j)
            sums[i][j] = accumulate ? load(o.c + i * o.c_row + j * kLanes, Full{}) : Vec{};
    const float* a = o.a;
    const float* b = o.b;
    for (int64_t p = 0; p < k; ++p) {
        Vec row[kN];
#pragma GCC unroll 4
        for (int j = 0; j < kN; ++j)
            row[j] = load(b + j * kLanes, Full{});
#pragma GCC unroll 8
        for (int i = 0; i < kM; ++i) {
            const Vec factor = splat(a[i * o.a_row]);
#pragma GCC unroll 4
            for (int j = 0; j < kN; ++j)
                sums[i][j] += factor * row[j];
        }
        a += o.a_column;
        b += o.b_row;
    }
    for (int i = 0; i < kM; ++i)
        for (int j = 0; j < kN; ++j)
            store(o.c + i * o.c_row + j * kLanes, sums[i][j], Full{});
}

template <int kM>
inline void gemm_columns(GemmOperands o, int64_t n, int64_t k, bool accumulate) {
    for (; n >= kTileVecs * kLanes; n -= kTileVecs * kLanes) {
        gemm_tile<kM, kTileVecs>(o, k, accumulate);
        o.b += kTileVecs * kLanes;
        o.c += kTileVecs * kLanes;
    }
    if (kTileVecs > 2 && n >= 2 * kLanes) {
        gemm_tile<kM, 2>(o, k, accumulate);
        o.b += 2 * kLanes;
        o.c += 2 * kLanes;
        n -= 2 * kLanes;
    }
    for (; n > 0; n -= kLanes) {
        gemm_tile<kM, 1>(o, k, accumulate);
        o.b += kLanes;
        o.c += kLanes;
    }
}

inline void gemm_strided(GemmOperands o, int64_t m, int64_t n, int64_t k, bool accumulate) {
    for (; m >= kTileRows; m -= kTileRows) {
        gemm_columns<kTileRows>(o, n, k, accumulate);
        o.a += kTileRows * o.a_row;
        o.c += kTileRows * o.c_row;
    }
    switch (m) {
        case 5:
            gemm_columns<5>(o, n, k, accumulate);
            break;
        case 4:
            gemm_columns<4>(o, n, k, accumulate);
            break;
        case 3:
            gemm_columns<3>(o, n, k, accumulate);
            break;
        case 2:
            gemm_columns<2>(o, n, k, accumulate);
            break;
        case 1:
            gemm_columns<1>(o, n, k, accumulate);
            break;
        default:
            break;
    }
}

GARAM_KERNELS_END
