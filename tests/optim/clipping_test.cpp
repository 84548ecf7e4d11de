#include "garam/optim/clipping.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "garam/core/error.h"

namespace garam {
namespace {

TEST(Clipping, ScaleIsTorchs) {
    EXPECT_EQ(clip_scale(0.5, 1.0), 1.0f);
    EXPECT_EQ(clip_scale(0.0, 1.0), 1.0f);
    EXPECT_FLOAT_EQ(clip_scale(4.0, 1.0), static_cast<float>(1.0 / (4.0 + 1e-6)));
    // The 1e-6 shows where the norm is just the limit.
    EXPECT_FLOAT_EQ(clip_scale(1e-3, 1e-3), static_cast<float>(1e-3 / (1e-3 + 1e-6)));
    EXPECT_EQ(clip_scale(1e30, 0.0), 1.0f);  // off
    EXPECT_TRUE(std::isnan(clip_scale(std::numeric_limits<double>::quiet_NaN(), 1.0)));
    EXPECT_EQ(clip_scale(std::numeric_limits<double>::infinity(), 1.0), 0.0f);
    EXPECT_THROW(clip_scale(1.0, -1.0), Bug);
}

TEST(Clipping, NormGoesOverAllParametersAndStartsAnew) {
    const auto device = make_cpu_device();
    Arena arena(*device, 1 << 20);
    Meter meter;
    Stream stream(*device, arena, meter);
    OwnedTensor a(*device, DType::f32, {2, 3}, Purpose::gradients);
    OwnedTensor b(*device, DType::f32, {1}, Purpose::gradients);
    for (int i = 0; i < 6; ++i)
        a.tensor.data<float>()[i] = static_cast<float>(i) - 2.0f;  // 19
    b.tensor.data<float>()[0] = -9.0f;                             // 81
    Parameter first;
    first.gradient = a.tensor;
    Parameter second;
    second.gradient = b.tensor;
    Parameter* const parameters[] = {&first, &second};
    OwnedTensor result(*device, DType::f32, {1}, Purpose::scratch);
    result.tensor.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();  // stale memory
    for (int repeat = 0; repeat < 2; ++repeat) {
        gradient_norm_squared(stream, parameters, result.tensor);
        EXPECT_EQ(result.tensor.data<float>()[0], 100.0f);
    }
}

}  // namespace
}  // namespace garam
