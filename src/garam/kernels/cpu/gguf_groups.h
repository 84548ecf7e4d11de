// GGUF's blocks (quant/gguf_blocks.h has their layouts), decoded a group of 32 elements at a time: whole
// blocks of 256 would be too much where a product wants a part of a row.
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
    const uint32_t half = place[0] | uint32_t{place[1]} << 8;
    const uint32_t magnitude = (half & 0x7fffu) << 13;
    const uint32_t value = (half & 0x7c00u) == 0x7c00u
                               ? magnitude | 0x7f800000u
                               : bits_of<uint32_t>(bits_of<float>(magnitude) * 0x1p112f);
    return bits_of<float>(value | (half & 0x8000u) << 16);
}

// out[i] = scale * (code - shift) (+ minimum): codes of 16 bytes' low nibbles, then of the high ones, with a fifth bit
// from `fifth` where there is one.
template <bool kHasFifth, bool kHasMinimum>
inline void decode_halves(const uint8_t* nibbles, uint32_t fifth, float scale, int shift,
                          float minimum, float* out) {
    for (int i = 0; i < 16; ++i) {
        int low = nibbles[i] & 15;
        int high = nibbles[i] >> 4;
        if constexpr (kHasFifth) {
            low |= static_cast<int>(fifth >> i & 1u) << 4;
            high |= static_cast<int>(fifth >> (i + 16) & 1u) << 4;
        }
        const float x = scale * static_cast<float>(low - shift);
        const float y = scale * static_cast<float>(high - shift);
        out[i] = kHasMinimum ? x + minimum : x;
        out[i + 16] = kHasMinimum ? y + minimum : y;
    }
}

inline uint32_t bits_at(const uint8_t* place) {
    uint32_t bits;
    __builtin_memcpy(&bits, place, sizeof(bits));
    return bits;
}

struct Q8_0 {
    static constexpr int64_t kElements = 32, kBytes = 34;
    static void decode(const uint8_t* block, int, float* out) {
        const float d = f16_at(block);
        const int8_t* const codes = reinterpret_cast<const int8_t*>(block + 2);
        for (int i = 0; i < kGroup; ++i)
            out[i] = d * static_cast<float>(codes[i]);
    }
};

struct Q4_0 {
    static constexpr int64_t kElements = 32, kBytes = 18;
    static void decode(const uint8_t* block, int, float* out) {
        decode_halves<false, false>(block + 2, 0, f16_at(block), 8, 0, out);
    }
};

struct Q4_1 {
    static constexpr int64_t kElements = 32, kBytes = 20;
    static void decode(const uint8_t* block, int, float* out) {
        decode_halves<false, true>(block + 4, 0, f16_at(block), 0, f16_at(block + 2), out);
    }
};

struct Q5_0 {
    static constexpr int64_t kElements = 32, kBytes = 22;
    static void decode(const uint8_t* block, int, float* out) {
        decode_halves<true, false>(block + 6, bits_at(block + 2), f16_at(block), 16, 0, out);
    }
};

struct Q5_1 {
    static constexpr int64_t kElements = 32, kBytes = 24;
    static void decode(const uint8_t* block, int, float* out) {
        decode_halves<true, true>(block + 8, bits_at(block + 4), f16_at(block), 0,
                                  f16_at(block + 2), out);
    }
};

alignas(64) constexpr float kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};

inline void decode_nonlinear(const uint8_t* nibbles, float scale, float* out) {
    const Table16 table(kNonLinear, scale);
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += kLanes) {
        BitVec codes;
#if defined(__AVX512F__)
        codes = (BitVec)_mm512_maskz_cvtepu8_epi32(
            0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(nibbles)));
#elif defined(__AVX2__)
        codes = (BitVec)_mm256_cvtepu8_epi32(
            _mm_loadl_epi64(reinterpret_cast<const __m128i*>(nibbles + i)));
#else
        for (int lane = 0; lane < kLanes; ++lane)
            codes[lane] = nibbles[i + lane];
#endif
        store(out + i, table.at(codes), Full{});
        store(out + 16 + i, table.at(codes >> 4), Full{});
    }
}

struct Iq4Nl {
    static constexpr int64_t kElements = 32, kBytes = 18;
    static void decode(const uint8_t* block, int, float* out) {
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
    static void decode(const uint8_t* block, int group, float* out) {
        const GroupScale x(block, group);
        const uint8_t* const nibbles = block + 16 + group / 2 * 32;
        const int shift = group % 2 * 4;
        for (int i = 0; i < kGroup; ++i)
            out[i] = x.scale * static_cast<float>(nibbles[i] >> shift & 15) - x.minimum;
    }
};

struct Q5K {
    static constexpr int64_t kElements = 256, kBytes = 176;
    static void decode(const uint8_t* block, int group, float* out) {
        const GroupScale x(block, group);
        const uint8_t* const fifth = block + 16;
        const uint8_t* const nibbles = block + 48 + group / 2 * 32;
        const int shift = group % 2 * 4;
        for (int i = 0; i < kGroup; ++i) {
            const int q = (nibbles[i] >> shift & 15) | (fifth[i] >> group & 1) << 4;
            out[i] = x.scale * static_cast<float>(q) - x.minimum;
        }
    }
};

struct Q6K {
    static constexpr int64_t kElements = 256, kBytes = 210;
    static void decode(const uint8_t* block, int group, float* out) {
        const int half = group / 4;
        const int part = group % 4;
        const uint8_t* const nibbles = block + half * 64 + part % 2 * 32;
        const uint8_t* const pairs = block + 128 + half * 32;
        const int8_t* const scales = reinterpret_cast<const int8_t*>(block + 192) + 2 * group;
        const float d = f16_at(block + 208);
        const int shift = part < 2 ? 0 : 4;
#pragma GCC unroll 2
        for (int sixteen = 0; sixteen < 2; ++sixteen) {
            const float scale = d * static_cast<float>(scales[sixteen]);
            for (int i = 16 * sixteen; i < 16 * sixteen + 16; ++i) {
                const int q = (nibbles[i] >> shift & 15) | (pairs[i] >> (2 * part) & 3) << 4;
                out[i] = scale * static_cast<float>(q - 32);
            }
        }
    }
};

struct Iq4Xs {
    static constexpr int64_t kElements = 256, kBytes = 136;
    static void decode(const uint8_t* block, int group, float* out) {
        const int high = block[2] | block[3] << 8;
        const int low = block[4 + group / 2] >> (4 * (group % 2)) & 15;
        const int scale = low | (high >> (2 * group) & 3) << 4;
        decode_nonlinear(block + 8 + 16 * group, f16_at(block) * static_cast<float>(scale - 32),
                         out);
    }
};

GARAM_KERNELS_END
