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

}  // namespace
}  // namespace garam
