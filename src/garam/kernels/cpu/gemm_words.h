// Operands of the matrix product as 32-bit words: one word is one step of k for one row or column,
// an fp32 value or, where the processor multiplies them, a pair of bf16.
#pragma once

#include "garam/kernels/cpu/simd.h"

#if defined(__FMA__)
#include <immintrin.h>  // always inlined: no copy for the linker to merge (kernel_table.h)
#endif

GARAM_KERNELS_BEGIN

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

GARAM_KERNELS_END
