#include "garam/core/philox.h"

#include <gtest/gtest.h>

namespace garam {
namespace {

// Known answers published with the authors' library (Random123, kat_vectors, philox4x32 10 rounds).
TEST(Philox, KnownAnswers) {
    EXPECT_EQ(philox({0, 0, 0, 0}, 0),
              (PhiloxWords{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
    EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, ~std::uint64_t{0}),
              (PhiloxWords{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
    EXPECT_EQ(philox({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, 0x299f31d0a4093822u),
              (PhiloxWords{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

// The same of 7 rounds.
TEST(Philox, KnownAnswersOfSevenRounds) {
    EXPECT_EQ(philox<7>({0, 0, 0, 0}, 0),
              (PhiloxWords{0x5f6fb709u, 0x0d893f64u, 0x4f121f81u, 0x4f730a48u}));
    EXPECT_EQ(philox<7>({~0u, ~0u, ~0u, ~0u}, ~std::uint64_t{0}),
              (PhiloxWords{0x5207ddc2u, 0x45165e59u, 0x4d8ee751u, 0x8c52f662u}));
    EXPECT_EQ(philox<7>({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, 0x299f31d0a4093822u),
              (PhiloxWords{0x4dfccabau, 0x190a87f0u, 0xc47362bau, 0xb6b5242au}));
}

TEST(Philox, MomentsOfTheStream) {
    Random random(7);
    double sum = 0;
    double squares = 0;
    constexpr int kCount = 200000;
    for (int i = 0; i < kCount; ++i) {
        const double x = random.normal();
        sum += x;
        squares += x * x;
    }
    EXPECT_NEAR(sum / kCount, 0, 5 / std::sqrt(kCount));            // 5 standard errors
    EXPECT_NEAR(squares / kCount, 1, 5 * std::sqrt(2.0 / kCount));  // variance of x^2 is 2
}

}  // namespace
}  // namespace garam
