#include "garam/quant/gguf_blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "garam/core/dtype.h"
#include "garam/core/error.h"

// The golden blocks of GGUF files are compared in tests/io/gguf_test.cpp, where a reader is at
// hand; here the layout is written out by hand.
namespace garam {
namespace {

void put_f16(std::vector<std::byte>& block, std::size_t at, float value) {
    const std::uint16_t bits = float16(value).bits;
    std::memcpy(block.data() + at, &bits, sizeof bits);
}

TEST(GgufBlocks, Q8_0IsScaleTimesSignedCode) {
    std::vector<std::byte> blocks(2 * kQ8_0Bytes);
    put_f16(blocks, 0, 0.5f);
    put_f16(blocks, kQ8_0Bytes, -0.25f);
    for (int i = 0; i < 32; ++i) {
        blocks[static_cast<std::size_t>(2 + i)] = static_cast<std::byte>(i - 16);
        blocks[kQ8_0Bytes + 2 + static_cast<std::size_t>(i)] = static_cast<std::byte>(-4 * i);
    }
    std::vector<float> out(64);
    dequantize_q8_0(blocks.data(), 64, out.data());
    for (int i = 0; i < 32; ++i) {
        EXPECT_EQ(out[static_cast<std::size_t>(i)], 0.5f * static_cast<float>(i - 16));
        EXPECT_EQ(out[static_cast<std::size_t>(32 + i)], static_cast<float>(i));
    }
    EXPECT_TRUE(std::signbit(out[32])) << "0 * -0.25 is -0, as in ggml";
}

TEST(GgufBlocks, Q4_0LowNibblesComeFirst) {
    std::vector<std::byte> block(kQ4_0Bytes);
    put_f16(block, 0, 2.0f);
    for (int i = 0; i < 16; ++i)
        block[static_cast<std::size_t>(2 + i)] = static_cast<std::byte>(i | ((15 - i) << 4));
    std::vector<float> out(32);
    dequantize_q4_0(block.data(), 32, out.data());
    for (int i = 0; i < 16; ++i) {
        EXPECT_EQ(out[static_cast<std::size_t>(i)], 2.0f * static_cast<float>(i - 8));
        EXPECT_EQ(out[static_cast<std::size_t>(16 + i)], 2.0f * static_cast<float>(7 - i));
    }
}

TEST(GgufBlocks, Q4_1AddsTheMinimumAfterTheProduct) {
    std::vector<std::byte> block(kQ4_1Bytes);
    put_f16(block, 0, 0.0333f);
    put_f16(block, 2, -1003.0f);
    for (int i = 0; i < 16; ++i)
        block[static_cast<std::size_t>(4 + i)] = static_cast<std::byte>(i | ((15 - i) << 4));
    std::vector<float> out(32);
    dequantize_q4_1(block.data(), 32, out.data());
    const float d = static_cast<float>(float16(0.0333f));
    for (int i = 0; i < 16; ++i) {
        const volatile float low = d * static_cast<float>(i);
        const volatile float high = d * static_cast<float>(15 - i);
        EXPECT_EQ(out[static_cast<std::size_t>(i)], low - 1003.0f);
        EXPECT_EQ(out[static_cast<std::size_t>(16 + i)], high - 1003.0f);
    }
}

TEST(GgufBlocks, CountMustBeWholeBlocks) {
    std::vector<std::byte> block(kQ8_0Bytes);
    std::vector<float> out(32);
    EXPECT_THROW(dequantize_q8_0(block.data(), 31, out.data()), Bug);
}

}  // namespace
}  // namespace garam
