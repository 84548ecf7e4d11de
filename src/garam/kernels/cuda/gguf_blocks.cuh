// GGUF's blocks on the device (quant/gguf_blocks.h has the layouts): eight neighbouring values at a time, products
// and sums rounded one after the other, as on the host. Blocks lie at even addresses.
#pragma once

#include "garam/kernels/cuda/dequantize.h"
#include "garam/kernels/cuda/device_code.cuh"

namespace garam::cuda {

constexpr int kAtOnce = 8;  // values; divides every group that has a scale of its own

struct GgufLayout {
    int elements;
    int bytes;
};
constexpr GgufLayout gguf_layout(QuantFormat format) {
    switch (format) {
        case QuantFormat::q8_0:
            return {32, 34};
        case QuantFormat::q4_0:
            return {32, 18};
        case QuantFormat::q4_1:
            return {32, 20};
        case QuantFormat::q5_0:
            return {32, 22};
        case QuantFormat::q5_1:
            return {32, 24};
        case QuantFormat::iq4_nl:
            return {32, 18};
        case QuantFormat::q4_k:
            return {256, 144};
        case QuantFormat::q5_k:
            return {256, 176};
        case QuantFormat::q6_k:
            return {256, 210};
        case QuantFormat::iq4_xs:
            return {256, 136};
        case QuantFormat::nf4:
        case QuantFormat::fp4:
            break;
    }
    return {1, 1};
}

__device__ __forceinline__ float half_at(const std::uint8_t* place) {
    return __half2float(*reinterpret_cast<const __half*>(place));
}
// Eight bytes from an even address, as two words.
struct EightBytes {
    std::uint32_t word[2];
    __device__ __forceinline__ explicit EightBytes(const std::uint8_t* place) {
        const auto* const at = reinterpret_cast<const std::uint16_t*>(place);
#pragma unroll
        for (int w = 0; w < 2; ++w)
            word[w] = at[2 * w] | static_cast<std::uint32_t>(at[2 * w + 1]) << 16;
    }
    __device__ __forceinline__ int at(int i) const {
        return static_cast<int>(word[i / 4] >> (8 * (i % 4)) & 255);
    }
};
// What the codes of IQ4_NL and IQ4_XS stand for: denser near zero, as weights are.
__device__ __forceinline__ int non_linear(int code) {
    constexpr std::int8_t kValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};
    // Four bytes a word, picked by shifts: an indexed array would lie in local memory.
    std::uint32_t words[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
        words[w] = 0;
#pragma unroll
        for (int b = 0; b < 4; ++b)
            words[w] |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(kValues[4 * w + b]))
                        << (8 * b);
    }
    const std::uint32_t low = __byte_perm(words[0], words[1], static_cast<std::uint32_t>(code & 7));
    const std::uint32_t high =
        __byte_perm(words[2], words[3], static_cast<std::uint32_t>(code & 7));
    return static_cast<std::int8_t>((code & 8 ? high : low) & 255);
}
// Scale or minimum `group` of the 12 bytes of Q4_K and Q5_K; `shift` is 0 for scales, 4 for minimums.
__device__ __forceinline__ int group_scale(const std::uint8_t* packed, int group, int shift) {
    const int i = group & 3;
    const int first = packed[shift + i];
    if (group < 4) return first & 63;
    return (packed[8 + i] >> shift & 15) | first >> 6 << 4;
}

// Elements [first, first + 8) of a block.
template <QuantFormat kFormat>
__device__ __forceinline__ void decode_gguf(const std::uint8_t* block, int first,
                                            float (&out)[kAtOnce]) {
    using enum QuantFormat;
    if constexpr (kFormat == q8_0) {
        const float d = half_at(block);
        const EightBytes q(block + 2 + first);
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
            out[i] = __fmul_rn(d, static_cast<float>(static_cast<std::int8_t>(q.at(i))));
    } else if constexpr (gguf_layout(kFormat).elements == 32) {
        constexpr bool kMinimum = kFormat == q4_1 || kFormat == q5_1;
        constexpr bool kFifth = kFormat == q5_0 || kFormat == q5_1;
        constexpr int kFifthAt = kMinimum ? 4 : 2;
        constexpr int kCodesAt = kFifthAt + (kFifth ? 4 : 0);
        const float d = half_at(block);
        const float m = kMinimum ? half_at(block + 2) : 0.0f;
        const EightBytes q(block + kCodesAt + first % 16);
        std::uint32_t fifth = 0;
        if constexpr (kFifth) {
            const auto* const at = reinterpret_cast<const std::uint16_t*>(block + kFifthAt);
            fifth = static_cast<std::uint32_t>(at[first / 16]) >> (first % 16);
        }
        const int shift = first < 16 ? 0 : 4;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            int code = q.at(i) >> shift & 15;
            if constexpr (kFifth) code |= static_cast<int>(fifth >> i & 1) << 4;
            if constexpr (kFormat == q4_0) code -= 8;
            if constexpr (kFormat == q5_0) code -= 16;
            if constexpr (kFormat == iq4_nl) code = non_linear(code);
            out[i] = __fmul_rn(d, static_cast<float>(code));
            if constexpr (kMinimum) out[i] = __fadd_rn(out[i], m);
        }
    } else if constexpr (kFormat == q4_k || kFormat == q5_k) {
        const int group = first / 32;
        const float scale =
            __fmul_rn(half_at(block), static_cast<float>(group_scale(block + 4, group, 0)));
        const float minimum =
            __fmul_rn(half_at(block + 2), static_cast<float>(group_scale(block + 4, group, 4)));
        constexpr int kCodesAt = kFormat == q5_k ? 48 : 16;
        const EightBytes q(block + kCodesAt + group / 2 * 32 + first % 32);
        const int shift = group % 2 * 4;
        int codes[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
            codes[i] = q.at(i) >> shift & 15;
        if constexpr (kFormat == q5_k) {
            const EightBytes fifth(block + 16 + first % 32);
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i)
                codes[i] |= (fifth.at(i) >> group & 1) << 4;
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
            out[i] = __fsub_rn(__fmul_rn(scale, static_cast<float>(codes[i])), minimum);
    } else if constexpr (kFormat == q6_k) {
        const int half = first / 128;
        const int within = first % 128;
        const EightBytes q(block + half * 64 + within % 64);
        const EightBytes pairs(block + 128 + half * 32 + within % 32);
        const int scale = static_cast<std::int8_t>(block[192 + first / 16]);
        const float step = __fmul_rn(half_at(block + 208), static_cast<float>(scale));
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            const int low = q.at(i) >> (within < 64 ? 0 : 4) & 15;
            const int high = pairs.at(i) >> (within / 32 * 2) & 3;
            out[i] = __fmul_rn(step, static_cast<float>((low | high << 4) - 32));
        }
    } else {
        static_assert(kFormat == iq4_xs);
        const int group = first / 32;
        const std::uint32_t high = *reinterpret_cast<const std::uint16_t*>(block + 2);
        const int scale = (block[4 + group / 2] >> (group % 2 * 4) & 15) |
                          static_cast<int>(high >> (2 * group) & 3) << 4;
        const float step = __fmul_rn(half_at(block), static_cast<float>(scale - 32));
        const EightBytes q(block + 8 + group * 16 + first % 16);
        const int shift = first % 32 < 16 ? 0 : 4;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
            out[i] = __fmul_rn(step, static_cast<float>(non_linear(q.at(i) >> shift & 15)));
    }
}

}  // namespace garam::cuda
