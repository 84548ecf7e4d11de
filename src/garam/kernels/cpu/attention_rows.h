// What every attention kernel does with a row of scores.
#pragma once

#include "garam/kernels/cpu/simd.h"

GARAM_KERNELS_BEGIN

constexpr int64_t kBlock = kAttentionBlock;

// Columns of packed tiles are padded with zeros to whole vectors of every instruction set.
inline int64_t padded(int64_t n) {
    return (n + kGemmColumns - 1) / kGemmColumns * kGemmColumns;
}
inline int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

// The first key of a tile of keys in which a query that sees the first `visible` finds its oldest.
inline int64_t first_tile(int64_t visible, int64_t window) {
    return visible > window ? (visible - window) / kBlock * kBlock : 0;
}

inline Vec tanh_of(Vec x) {
    return 1.0f - 2.0f / (1.0f + exp_of(x + x));
}

// scores = softcap * tanh(scores / softcap)
inline void cap_row(float* scores, int64_t columns, float softcap) {
    for (int64_t i = 0; i < columns; i += kLanes)
        store(scores + i, tanh_of(load(scores + i, Full{}) / softcap) * softcap, Full{});
}

// Scores of one row become exp(score - maximum); the row's maximum and total so far, and its sums of
// values (null before the first keys), move to the new maximum.
inline void soften_row(float* scores, int64_t keys, float& maximum, float& total, float* sums,
                       int64_t width) {
    Vec maxima = splat(maximum);
    for (int64_t i = 0; i < padded(keys); i += kLanes)
        maxima = max_of(load(scores + i, Full{}), maxima);
    const float before = maximum;
    maximum = max_of(maxima);
    // A row that has seen no key yet (a window's edge) stays at zero.
    const float offset = maximum == -__builtin_inff() ? 0.0f : maximum;
    Vec sum{};
    for (int64_t i = 0; i < padded(keys); i += kLanes) {
        const Vec p = exp_of(load(scores + i, Full{}) - offset);
        store(scores + i, p, Full{});
        sum += p;
    }
    if (sums != nullptr && maximum != before) {
        const float shrink = exp_of(splat(before - maximum))[0];
        total *= shrink;
        for (int64_t i = 0; i < width; i += kLanes)
            store(sums + i, load(sums + i, Full{}) * shrink, Full{});
    }
    total += sum_of(sum);
}

GARAM_KERNELS_END
