#include "garam/models/adapter_init.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "garam/core/error.h"

namespace garam {
namespace {

struct Pair {
    std::int64_t in, out, r;
    std::vector<float> a, b;

    Pair(LoraInit::Kind init, std::int64_t rank, std::uint64_t number = 0)
        : in(300),
          out(200),
          r(rank),
          a(static_cast<std::size_t>(r * in)),
          b(static_cast<std::size_t>(out * r)) {
        initialise_lora(init, 5, number, Tensor(a.data(), DType::f32, {r, in}, DeviceKind::cpu),
                        Tensor(b.data(), DType::f32, {out, r}, DeviceKind::cpu));
    }
    double deviation(const std::vector<float>& values) const {
        double squares = 0;
        for (const float value : values)
            squares += static_cast<double>(value) * static_cast<double>(value);
        return std::sqrt(squares / static_cast<double>(values.size()));
    }
};

// The deviation of n samples is known to 1 / sqrt(2 n) of itself; four of these.
TEST(AdapterInit, DeviationsArePefts) {
    const Pair gaussian(LoraInit::Kind::gaussian, 8);
    EXPECT_NEAR(gaussian.deviation(gaussian.a), 1.0 / 8, 0.125 * 4 / std::sqrt(4800.0));
    EXPECT_EQ(gaussian.deviation(gaussian.b), 0);
    const Pair kaiming(LoraInit::Kind::kaiming, 8);
    EXPECT_NEAR(kaiming.deviation(kaiming.a), 1 / std::sqrt(900.0), 0.03 * 4 / std::sqrt(4800.0));
    EXPECT_EQ(kaiming.deviation(kaiming.b), 0);
    // r / 2 normal terms of unit rows over r columns: deviation sqrt(1 / 2) / 10.
    const Pair orthogonal(LoraInit::Kind::orthogonal, 8);
    EXPECT_NEAR(orthogonal.deviation(orthogonal.a), std::sqrt(0.5) / 10, 0.008);
    EXPECT_NEAR(orthogonal.deviation(orthogonal.b), std::sqrt(0.5) / 10, 0.008);
    EXPECT_NE(orthogonal.a, Pair(LoraInit::Kind::orthogonal, 8, 1).a);
    EXPECT_EQ(orthogonal.a, Pair(LoraInit::Kind::orthogonal, 8).a);
}

TEST(AdapterInit, OrthogonalPairsHaveNoProduct) {
    const Pair pair(LoraInit::Kind::orthogonal, 16);
    for (std::int64_t o = 0; o < pair.out; ++o) {
        for (std::int64_t i = 0; i < pair.in; ++i) {
            double product = 0;
            for (std::int64_t k = 0; k < pair.r; ++k)
                product += static_cast<double>(pair.b[static_cast<std::size_t>(o * pair.r + k)]) *
                           static_cast<double>(pair.a[static_cast<std::size_t>(k * pair.in + i)]);
            ASSERT_NEAR(product, 0, 1e-7);
        }
    }
    EXPECT_THROW(Pair(LoraInit::Kind::orthogonal, 3), Error);
    EXPECT_THROW(lora_init_from_name("olora"), Error);
    EXPECT_THROW(lora_init_from_name("pissa_niter_"), Error);
    EXPECT_TRUE(lora_init_from_name("pissa").is_pissa());
    EXPECT_FALSE(lora_init_from_name("pissa").iterations.has_value());
    EXPECT_EQ(lora_init_from_name("pissa_niter_16").iterations, 16);
}

}  // namespace
}  // namespace garam
