#include "garam/core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace garam {
namespace {

TEST(Dtype, EveryFloat16RoundTrips) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        const float16 half = float16::from_bits(static_cast<std::uint16_t>(bits));
        const float wide = static_cast<float>(half);
        if (std::isnan(wide)) continue;
        EXPECT_EQ(float16(wide).bits, half.bits) << bits;
    }
}

TEST(Dtype, Float16RoundsToNearestEven) {
    // Between two neighbours the midpoint goes to the even one, anything beyond it to the nearer.
    for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {
        const float low = static_cast<float>(float16::from_bits(static_cast<std::uint16_t>(bits)));
        const float high =
            static_cast<float>(float16::from_bits(static_cast<std::uint16_t>(bits + 1)));
        const float middle = low + (high - low) / 2;
        EXPECT_EQ(float16(middle).bits, bits % 2 == 0 ? bits : bits + 1);
        EXPECT_EQ(float16(std::nextafter(middle, 1e9f)).bits, bits + 1);
        EXPECT_EQ(float16(std::nextafter(middle, -1.0f)).bits, bits);
    }
    EXPECT_EQ(float16(65519.0f).bits, 0x7bff);
    EXPECT_EQ(float16(65520.0f).bits, 0x7c00);
    EXPECT_TRUE(std::isnan(static_cast<float>(float16(NAN))));
}

TEST(Dtype, EveryBfloat16RoundTripsAndRoundsToNearestEven) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        const bfloat16 b = bfloat16::from_bits(static_cast<std::uint16_t>(bits));
        const float wide = static_cast<float>(b);
        if (std::isnan(wide)) {
            EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(wide))));
            continue;
        }
        EXPECT_EQ(bfloat16(wide).bits, b.bits);
    }
    EXPECT_EQ(bfloat16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);
    EXPECT_EQ(bfloat16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);
    EXPECT_EQ(bfloat16(std::bit_cast<float>(0x3f808001u)).bits, 0x3f81);
}

}  // namespace
}  // namespace garam
