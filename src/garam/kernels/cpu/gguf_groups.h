// GGUF's blocks (quant/gguf_blocks.h has their layouts), decoded a group of 32 elements at a time: whole
// blocks of 256 would be too much where a product wants a part of a row. `out` takes vectors of values: their first
// element's number in the group, and the values.
#pragma once

#include "garam/kernels/cpu/simd.h"

GARAM_KERNELS_BEGIN

using std::int8_t;
using std::uint8_t;

constexpr int64_t kGroup = 32;

// Sixteen values times a scale, looked up by the low four bits of each lane.
struct Table16 {
#if defined(__AVX512F__)
    Vec values;
    Table16(const float* table, float scale) : values(load(table, Full{}) * scale) {}
    Vec at(BitVec codes) const {
        return (Vec)_mm512_maskz_permutexvar_ps(0xffff, (__m512i)codes, (__m512)values);
    }
#elif defined(__AVX2__)
    Vec low, high;
    Table16(const float* table, float scale)
        : low(load(table, Full{}) * scale), high(load(table + kLanes, Full{}) * scale) {}
    Vec at(BitVec codes) const {
        const __m256 below = _mm256_permutevar8x32_ps((__m256)low, (__m256i)codes);
        const __m256 above = _mm256_permutevar8x32_ps((__m256)high, (__m256i)codes);
        return (Vec)_mm256_blendv_ps(below, above, (__m256)(codes << 28));
    }
#else
    float values[16];
    Table16(const float* table, float scale) {
        for (int i = 0; i < 16; ++i)
            values[i] = table[i] * scale;
    }
    Vec at(BitVec codes) const {
        Vec x;
        for (int i = 0; i < kLanes; ++i)
            x[i] = values[codes[i] & 15u];
        return x;
    }
#endif
};

inline float f16_at(const uint8_t* place) {
#if defined(__F16C__)
    uint16_t bits;
    __builtin_memcpy(&bits, place, sizeof(bits));
    return _cvtsh_ss(bits);
#else
    const uint32_t half = place[0] | uint32_t{place[1]} << 8;
    const uint32_t magnitude = (half & 0x7fffu) << 13;
    const uint32_t value = (half & 0x7c00u) == 0x7c00u
                               ? magnitude | 0x7f800000u
                               : bits_of<uint32_t>(bits_of<float>(magnitude) * 0x1p112f);
    return bits_of<float>(value | (half & 0x8000u) << 16);
#endif
}

inline BitVec bytes_at(const uint8_t* place) {
#if defined(__AVX512F__)
    return (BitVec)_mm512_maskz_cvtepu8_epi32(
        0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(place)));
#elif defined(__AVX2__)
    return (BitVec)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(place)));
#else
    return BitVec{place[0], place[1], place[2], place[3]};
#endif
}
inline Vec numbers(BitVec codes, int shift) {
    return __builtin_convertvector((IntVec)codes - shift, Vec);
}

// Bit `first` + i of `bits` in the fifth place of lane i.
inline BitVec fifth_of(uint32_t bits, int first) {
    BitVec lane{};
    for (int i = 0; i < kLanes; ++i)
        lane[i] = static_cast<uint32_t>(i);
    return (BitVec{} + (bits >> first)) >> lane << 4 & 16u;
}

// scale * (code - shift) (+ minimum): codes of 16 bytes' low nibbles, then of the high ones, with a fifth bit
// from `fifth` where there is one.
template <bool kHasFifth, bool kHasMinimum, class Out>
inline void decode_halves(const uint8_t* nibbles, uint32_t fifth, float scale, int shift,
                          float minimum, const Out& out) {
    const auto value = [&](BitVec codes, int first) {
        if constexpr (kHasFifth) codes |= fifth_of(fifth, first);
        const Vec x = numbers(codes, shift) * scale;
        out(first, kHasMinimum ? x + minimum : x);
    };
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += kLanes) {
        const BitVec bytes = bytes_at(nibbles + i);
        value(bytes & 15u, i);
        value(bytes >> 4, 16 + i);
    }
}

inline uint32_t bits_at(const uint8_t* place) {
    uint32_t bits;
    __builtin_memcpy(&bits, place, sizeof(bits));
    return bits;
}

struct Q8_0 {
    static constexpr int64_t kElements = 32, kBytes = 34;
    template <class Out>
    static void decode(const uint8_t* block, int, const Out& out) {
        const float d = f16_at(block);
#pragma GCC unroll 8
        for (int i = 0; i < kGroup; i += kLanes)
            out(i, numbers(bytes_at(block + 2 + i) ^ 128u, 128) * d);  // signed
    }
};

struct Q4_0 {
    static constexpr int64_t kElements = 32, kBytes = 18;
    template <class Out>
    static void decode(const uint8_t* block, int, const Out& out) {
        decode_halves<false, false>(block + 2, 0, f16_at(block), 8, 0, out);
    }
};

struct Q4_1 {
    static constexpr int64_t kElements = 32, kBytes = 20;
    template <class Out>
    static void decode(const uint8_t* block, int, const Out& out) {
        decode_halves<false, true>(block + 4, 0, f16_at(block), 0, f16_at(block + 2), out);
    }
};

struct Q5_0 {
    static constexpr int64_t kElements = 32, kBytes = 22;
    template <class Out>
    static void decode(const uint8_t* block, int, const Out& out) {
        decode_halves<true, false>(block + 6, bits_at(block + 2), f16_at(block), 16, 0, out);
    }
};

struct Q5_1 {
    static constexpr int64_t kElements = 32, kBytes = 24;
    template <class Out>
    static void decode(const uint8_t* block, int, const Out& out) {
        decode_halves<true, true>(block + 8, bits_at(block + 4), f16_at(block), 0,
                                  f16_at(block + 2), out);
    }
};

alignas(64) constexpr float kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};

template <class Out>
inline void decode_nonlinear(const uint8_t* nibbles, float scale, const Out& out) {
    const Table16 table(kNonLinear, scale);
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += kLanes) {
        const BitVec bytes = bytes_at(nibbles + i);
        out(i, table.at(bytes));
        out(16 + i, table.at(bytes >> 4));
    }
}

struct Iq4Nl {
    static constexpr int64_t kElements = 32, kBytes = 18;
    template <class Out>
    static void decode(const uint8_t* block, int, const Out& out) {
        decode_nonlinear(block + 2, f16_at(block), out);
    }
};

// Scale and minimum of one of the 8 groups of Q4_K and Q5_K.
struct GroupScale {
    float scale, minimum;

    GroupScale(const uint8_t* block, int group) {
        const uint8_t* const packed = block + 4;
        int s = packed[group % 4];
        int m = packed[4 + group % 4];
        if (group < 4) {
            s &= 63;
            m &= 63;
        } else {
            const int both = packed[4 + group];
            s = (both & 15) | s >> 6 << 4;
            m = both >> 4 | m >> 6 << 4;
        }
        scale = f16_at(block) * static_cast<float>(s);
        minimum = f16_at(block + 2) * static_cast<float>(m);
    }
};

struct Q4K {
    static constexpr int64_t kElements = 256, kBytes = 144;
    template <class Out>
    static void decode(const uint8_t* block, int group, const Out& out) {
        const GroupScale x(block, group);
        const uint8_t* const nibbles = block + 16 + group / 2 * 32;
        const int shift = group % 2 * 4;
#pragma GCC unroll 8
        for (int i = 0; i < kGroup; i += kLanes)
            out(i, numbers(bytes_at(nibbles + i) >> shift & 15u, 0) * x.scale - x.minimum);
    }
};

struct Q5K {
    static constexpr int64_t kElements = 256, kBytes = 176;
    template <class Out>
    static void decode(const uint8_t* block, int group, const Out& out) {
        const GroupScale x(block, group);
        const uint8_t* const fifth = block + 16;
        const uint8_t* const nibbles = block + 48 + group / 2 * 32;
        const int shift = group % 2 * 4;
#pragma GCC unroll 8
        for (int i = 0; i < kGroup; i += kLanes) {
            const BitVec high = (bytes_at(fifth + i) >> group & 1u) << 4;
            out(i, numbers((bytes_at(nibbles + i) >> shift & 15u) | high, 0) * x.scale - x.minimum);
        }
    }
};

struct Q6K {
    static constexpr int64_t kElements = 256, kBytes = 210;
    template <class Out>
    static void decode(const uint8_t* block, int group, const Out& out) {
        const int half = group / 4;
        const int part = group % 4;
        const uint8_t* const nibbles = block + half * 64 + part % 2 * 32;
        const uint8_t* const pairs = block + 128 + half * 32;
        const int8_t* const scales = reinterpret_cast<const int8_t*>(block + 192) + 2 * group;
        const float d = f16_at(block + 208);
        const int shift = part < 2 ? 0 : 4;
#pragma GCC unroll 8
        for (int i = 0; i < kGroup; i += kLanes) {
            const BitVec high = (bytes_at(pairs + i) >> 2 * part & 3u) << 4;
            const float scale = d * static_cast<float>(scales[i / 16]);
            out(i, numbers((bytes_at(nibbles + i) >> shift & 15u) | high, 32) * scale);
        }
    }
};

struct Iq4Xs {
    static constexpr int64_t kElements = 256, kBytes = 136;
    template <class Out>
    static void decode(const uint8_t* block, int group, const Out& out) {
        const int high = block[2] | block[3] << 8;
        const int low = block[4 + group / 2] >> (4 * (group % 2)) & 15;
        const int scale = low | (high >> (2 * group) & 3) << 4;
        decode_nonlinear(block + 8 + 16 * group, f16_at(block) * static_cast<float>(scale - 32),
                         out);
    }
};

GARAM_KERNELS_END
