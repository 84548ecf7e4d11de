#include "garam/quant/gguf_blocks.h"

#include <cstring>

#include "garam/core/dtype.h"
#include "garam/core/error.h"

namespace garam {
namespace {

constexpr int kHalf = 16;
constexpr int kGroup = 32;  // elements with one scale in Q4_K, Q5_K and IQ4_XS

// What the codes of IQ4_NL and IQ4_XS stand for: denser near zero, as weights are.
constexpr std::array<std::int8_t, 16> kNonLinear = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                    1,    13,   25,  38,  53,  69,  89,  113};

float f16_at(const std::byte* place) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, place, sizeof bits);
    return static_cast<float>(float16::from_bits(bits));
}

const std::uint8_t* codes_at(const std::byte* place) {
    return reinterpret_cast<const std::uint8_t*>(place);
}

std::int64_t blocks_in(std::int64_t count, std::int64_t block = kGgufBlock) {
    GARAM_CHECK(count % block == 0, "GGUF blocks hold 32 or 256 elements each");
    return count / block;
}

// Element i of a block with 16 bytes of nibbles and 32 fifth bits.
struct FiveBits {
    int low = 0;
    int high = 0;
};
FiveBits five_bits(const std::byte* fifth, const std::uint8_t* nibbles, int i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, fifth, sizeof bits);
    return {(nibbles[i] & 15) | static_cast<int>((bits >> i & 1u) << 4),
            (nibbles[i] >> 4) | static_cast<int>((bits >> (i + kHalf) & 1u) << 4)};
}

}  // namespace

void dequantize_q8_0(const std::byte* blocks, std::int64_t count, float* out) {
    const std::int64_t num_blocks = blocks_in(count);
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += kQ8_0Bytes, out += kGgufBlock) {
        const float d = f16_at(blocks);
        const auto* codes = reinterpret_cast<const std::int8_t*>(blocks + 2);
        for (int i = 0; i < kGgufBlock; ++i)
            out[i] = d * static_cast<float>(codes[i]);
    }
}

void dequantize_q4_0(const std::byte* blocks, std::int64_t count, float* out) {
    const std::int64_t num_blocks = blocks_in(count);
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += kQ4_0Bytes, out += kGgufBlock) {
        const float d = f16_at(blocks);
        const std::uint8_t* const codes = codes_at(blocks + 2);
        for (int i = 0; i < kHalf; ++i) {
            out[i] = d * static_cast<float>((codes[i] & 15) - 8);
            out[i + kHalf] = d * static_cast<float>((codes[i] >> 4) - 8);
        }
    }
}

void dequantize_q4_1(const std::byte* blocks, std::int64_t count, float* out) {
    const std::int64_t num_blocks = blocks_in(count);
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += kQ4_1Bytes, out += kGgufBlock) {
        const float d = f16_at(blocks);
        const float m = f16_at(blocks + 2);
        const std::uint8_t* const codes = codes_at(blocks + 4);
        for (int i = 0; i < kHalf; ++i) {
            out[i] = d * static_cast<float>(codes[i] & 15) + m;
            out[i + kHalf] = d * static_cast<float>(codes[i] >> 4) + m;
        }
    }
}

void dequantize_q5_0(const std::byte* blocks, std::int64_t count, float* out) {
    const std::int64_t num_blocks = blocks_in(count);
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += kQ5_0Bytes, out += kGgufBlock) {
        const float d = f16_at(blocks);
        for (int i = 0; i < kHalf; ++i) {
            const FiveBits q = five_bits(blocks + 2, codes_at(blocks + 6), i);
            out[i] = d * static_cast<float>(q.low - 16);
            out[i + kHalf] = d * static_cast<float>(q.high - 16);
        }
    }
}

void dequantize_q5_1(const std::byte* blocks, std::int64_t count, float* out) {
    const std::int64_t num_blocks = blocks_in(count);
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += kQ5_1Bytes, out += kGgufBlock) {
        const float d = f16_at(blocks);
        const float m = f16_at(blocks + 2);
        for (int i = 0; i < kHalf; ++i) {
            const FiveBits q = five_bits(blocks + 4, codes_at(blocks + 8), i);
            out[i] = d * static_cast<float>(q.low) + m;
            out[i + kHalf] = d * static_cast<float>(q.high) + m;
        }
    }
}

void dequantize_iq4_nl(const std::byte* blocks, std::int64_t count, float* out) {
    const std::int64_t num_blocks = blocks_in(count);
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += kIq4NlBytes, out += kGgufBlock) {
        const float d = f16_at(blocks);
        const std::uint8_t* const codes = codes_at(blocks + 2);
        for (int i = 0; i < kHalf; ++i) {
            out[i] = d * static_cast<float>(kNonLinear[codes[i] & 15]);
            out[i + kHalf] = d * static_cast<float>(kNonLinear[codes[i] >> 4]);
        }
    }
}

GroupScales unpack_group_scales(const std::byte* packed) {
    const std::uint8_t* const bytes = codes_at(packed);
    GroupScales scales;
    for (std::size_t i = 0; i < 4; ++i) {
        scales.scale[i] = bytes[i] & 63;
        scales.minimum[i] = bytes[4 + i] & 63;
        scales.scale[4 + i] = static_cast<std::uint8_t>((bytes[8 + i] & 15) | (bytes[i] >> 6 << 4));
        scales.minimum[4 + i] =
            static_cast<std::uint8_t>((bytes[8 + i] >> 4) | (bytes[4 + i] >> 6 << 4));
    }
    return scales;
}

void pack_group_scales(const GroupScales& scales, std::byte* packed) {
    for (std::size_t i = 0; i < 4; ++i) {
        const unsigned scale = scales.scale[4 + i];
        const unsigned minimum = scales.minimum[4 + i];
        packed[i] = static_cast<std::byte>(scales.scale[i] | (scale >> 4 << 6));
        packed[4 + i] = static_cast<std::byte>(scales.minimum[i] | (minimum >> 4 << 6));
        packed[8 + i] = static_cast<std::byte>((scale & 15) | ((minimum & 15) << 4));
    }
}

void dequantize_q4_k(const std::byte* blocks, std::int64_t count, float* out) {
    const std::int64_t num_blocks = blocks_in(count, kGgufSuperBlock);
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += kQ4KBytes) {
        const float d = f16_at(blocks);
        const float m = f16_at(blocks + 2);
        const GroupScales scales = unpack_group_scales(blocks + 4);
        const std::uint8_t* nibbles = codes_at(blocks + 16);
        // 32 bytes hold two groups: one in the low nibbles, the next in the high ones.
        for (std::size_t group = 0; group < 8; ++group, out += kGroup) {
            const float scale = d * static_cast<float>(scales.scale[group]);
            const float minimum = m * static_cast<float>(scales.minimum[group]);
            const int shift = group % 2 == 0 ? 0 : 4;
            for (int i = 0; i < kGroup; ++i)
                out[i] = scale * static_cast<float>(nibbles[i] >> shift & 15) - minimum;
            if (shift == 4) nibbles += kGroup;
        }
    }
}

void dequantize_q5_k(const std::byte* blocks, std::int64_t count, float* out) {
    const std::int64_t num_blocks = blocks_in(count, kGgufSuperBlock);
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += kQ5KBytes) {
        const float d = f16_at(blocks);
        const float m = f16_at(blocks + 2);
        const GroupScales scales = unpack_group_scales(blocks + 4);
        const std::uint8_t* const fifth = codes_at(blocks + 16);  // bit `group` of byte i
        const std::uint8_t* nibbles = codes_at(blocks + 48);
        for (std::size_t group = 0; group < 8; ++group, out += kGroup) {
            const float scale = d * static_cast<float>(scales.scale[group]);
            const float minimum = m * static_cast<float>(scales.minimum[group]);
            const int shift = group % 2 == 0 ? 0 : 4;
            for (int i = 0; i < kGroup; ++i) {
                const int q = (nibbles[i] >> shift & 15) | (fifth[i] >> group & 1) << 4;
                out[i] = scale * static_cast<float>(q) - minimum;
            }
            if (shift == 4) nibbles += kGroup;
        }
    }
}

void dequantize_q6_k(const std::byte* blocks, std::int64_t count, float* out) {
    const std::int64_t num_blocks = blocks_in(count, kGgufSuperBlock);
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += kQ6KBytes) {
        const std::uint8_t* nibbles = codes_at(blocks);
        const std::uint8_t* pairs = codes_at(blocks + 128);
        const auto* scales = reinterpret_cast<const std::int8_t*>(blocks + 192);
        const float d = f16_at(blocks + 208);
        // Each half of 128 elements has 64 bytes of nibbles: the low ones are its first 64 elements,
        // the high ones its last; byte i of its 32 with bit pairs serves elements i, 32 + i, ….
        for (int half = 0; half < 2; ++half, nibbles += 64, pairs += 32, scales += 8) {
            for (int i = 0; i < 128; ++i, ++out) {
                const int low = nibbles[i % 64] >> (i < 64 ? 0 : 4) & 15;
                const int high = pairs[i % 32] >> (2 * (i / 32)) & 3;
                const std::int8_t scale = scales[i / 16];
                *out = d * static_cast<float>(scale) * static_cast<float>((low | high << 4) - 32);
            }
        }
    }
}

void dequantize_iq4_xs(const std::byte* blocks, std::int64_t count, float* out) {
    const std::int64_t num_blocks = blocks_in(count, kGgufSuperBlock);
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += kIq4XsBytes) {
        const float d = f16_at(blocks);
        std::uint16_t high = 0;
        std::memcpy(&high, blocks + 2, sizeof high);
        const std::uint8_t* const low = codes_at(blocks + 4);
        const std::uint8_t* nibbles = codes_at(blocks + 8);
        for (int group = 0; group < 8; ++group, out += kGroup, nibbles += kHalf) {
            const int scale = (low[group / 2] >> (4 * (group % 2)) & 15) | (high >> (2 * group) & 3)
                                                                               << 4;
            const float step = d * static_cast<float>(scale - 32);
            for (int i = 0; i < kHalf; ++i) {
                out[i] = step * static_cast<float>(kNonLinear[nibbles[i] & 15]);
                out[i + kHalf] = step * static_cast<float>(kNonLinear[nibbles[i] >> 4]);
            }
        }
    }
}

GgufFormat gguf_format(QuantFormat format) {
    const auto of = [](std::int64_t elements, std::size_t bytes, auto* dequantize) {
        return GgufFormat{elements, static_cast<std::int64_t>(bytes), dequantize};
    };
    switch (format) {
        case QuantFormat::nf4:
        case QuantFormat::fp4:
            break;
        case QuantFormat::q8_0:
            return of(kGgufBlock, kQ8_0Bytes, dequantize_q8_0);
        case QuantFormat::q4_0:
            return of(kGgufBlock, kQ4_0Bytes, dequantize_q4_0);
        case QuantFormat::q4_1:
            return of(kGgufBlock, kQ4_1Bytes, dequantize_q4_1);
        case QuantFormat::q5_0:
            return of(kGgufBlock, kQ5_0Bytes, dequantize_q5_0);
        case QuantFormat::q5_1:
            return of(kGgufBlock, kQ5_1Bytes, dequantize_q5_1);
        case QuantFormat::iq4_nl:
            return of(kGgufBlock, kIq4NlBytes, dequantize_iq4_nl);
        case QuantFormat::q4_k:
            return of(kGgufSuperBlock, kQ4KBytes, dequantize_q4_k);
        case QuantFormat::q5_k:
            return of(kGgufSuperBlock, kQ5KBytes, dequantize_q5_k);
        case QuantFormat::q6_k:
            return of(kGgufSuperBlock, kQ6KBytes, dequantize_q6_k);
        case QuantFormat::iq4_xs:
            return of(kGgufSuperBlock, kIq4XsBytes, dequantize_iq4_xs);
    }
    throw Bug("nf4 and fp4 have no GGUF blocks");
}

}  // namespace garam
