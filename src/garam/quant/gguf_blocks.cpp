#include "garam/quant/gguf_blocks.h"

#include <cstring>

#include "garam/core/dtype.h"
#include "garam/core/error.h"

namespace garam {
namespace {

constexpr int kHalf = 16;

float f16_at(const std::byte* place) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, place, sizeof bits);
    return static_cast<float>(float16::from_bits(bits));
}

std::int64_t blocks_in(std::int64_t count) {
    GARAM_CHECK(count % kGgufBlock == 0, "GGUF blocks hold 32 elements each");
    return count / kGgufBlock;
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
        const auto* codes = reinterpret_cast<const std::uint8_t*>(blocks + 2);
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
        const auto* codes = reinterpret_cast<const std::uint8_t*>(blocks + 4);
        for (int i = 0; i < kHalf; ++i) {
            out[i] = d * static_cast<float>(codes[i] & 15) + m;
            out[i + kHalf] = d * static_cast<float>(codes[i] >> 4) + m;
        }
    }
}

}  // namespace garam
