#include "garam/ops/gradient_scale.h"

#include <cmath>
#include <limits>

#include "garam/core/error.h"
#include "ops/op_run.h"

namespace garam::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class GradientScale : public OpTest {
  protected:
    static double scale_of(double loss_sum, double norm_squared, std::int64_t targets,
                           double max_norm, double before = 0) {
        OpRun run(GetParam());
        const int loss = run.input(DType::f32, 1, 1);
        const int norm = run.input(DType::f32, 1, 1);
        const int scale = run.in_place(DType::f32, 1, 1);
        run.set(loss, {loss_sum});
        run.set(norm, {norm_squared});
        run.set(scale, {before});
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                gradient_scale(stream, t[loss], t[norm], targets, max_norm, t[scale]);
            },
            {0, 12, 4});
        return run.values(scale)[0];
    }
};
GARAM_FOR_ALL_PROFILES(GradientScale);

TEST_P(GradientScale, IsTorchsClippingOfTheMean) {
    EXPECT_EQ(scale_of(3, 0.25, 1, 1), 1.0);
    EXPECT_EQ(scale_of(3, 0, 4, 1), 0.25);
    EXPECT_EQ(scale_of(3, 16, 1, 1), static_cast<float>(1.0 / (4.0 + 1e-6)));
    // A norm of 40 of the sum is one of 4 of the mean of ten.
    EXPECT_FLOAT_EQ(static_cast<float>(scale_of(3, 1600, 10, 1)),
                    static_cast<float>(0.1 / (4.0 + 1e-6)));
    // The 1e-6 shows where the norm is just the limit.
    EXPECT_FLOAT_EQ(static_cast<float>(scale_of(3, 0x1p-20, 1, 0x1p-10)),
                    static_cast<float>(0x1p-10 / (0x1p-10 + 1e-6)));
    EXPECT_EQ(scale_of(3, 1e30, 2, 0), 0.5);  // off
    EXPECT_EQ(scale_of(0, 0, 0, 1), 1.0);     // no target at all
}

TEST_P(GradientScale, IsNaNFromTheFirstStepThatIsNotFinite) {
    for (const double bad : {kNaN, kInfinity, -kInfinity}) {
        EXPECT_TRUE(std::isnan(scale_of(bad, 1, 1, 1)));
        EXPECT_TRUE(std::isnan(scale_of(1, bad, 1, 1)));
        EXPECT_TRUE(std::isnan(scale_of(1, bad, 1, 0)));
    }
    EXPECT_TRUE(std::isnan(scale_of(1, 1, 1, 1, kNaN)));
    EXPECT_EQ(scale_of(1, 1, 1, 1, 0.5), static_cast<float>(1 / (1 + 1e-6)));
}

TEST(GradientScaleChecks, RefusesANegativeNorm) {
    const auto device = make_cpu_device();
    Arena arena(*device, 1 << 12);
    Meter meter;
    Stream stream(*device, arena, meter);
    const Tensor x = arena.push(DType::f32, {1}, Purpose::scratch);
    EXPECT_THROW(gradient_scale(stream, x, x, 1, -1, x), Bug);
}

}  // namespace
}  // namespace garam::testing
