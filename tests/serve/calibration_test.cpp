#include "garam/serve/calibration.h"

#include <gtest/gtest.h>

#include "garam/core/philox.h"

namespace garam {
namespace {

TEST(Calibration, ByHand) {
    Calibration calibration;
    EXPECT_EQ(calibration.expected_error(), 0);
    // One bin: (14/15, 1]; right 3 of 4, mean 0.97.
    for (const double p : {0.96, 0.96, 0.98})
        calibration.add(p, true);
    calibration.add(0.98, false);
    EXPECT_NEAR(calibration.expected_error(), 0.97 - 0.75, 1e-12);
    // Another: (7/15, 8/15]; both right, mean 0.5. Of 6 rows: (4 * 0.22 + 2 * 0.5) / 6.
    calibration.add(0.5, true);
    calibration.add(0.5, true);
    EXPECT_EQ(calibration.total(), 6);
    EXPECT_NEAR(calibration.expected_error(), (4 * 0.22 + 2 * 0.5) / 6, 1e-12);
}

TEST(Calibration, EndsBelongToABin) {
    for (const double p : {0.0, 1.0, 1.0 / 15, 1 + 1e-12}) {
        Calibration calibration;
        calibration.add(p, true);
        EXPECT_NEAR(calibration.expected_error(), 1 - p, 1e-9);
    }
}

// Right as often as it says: the error of 40000 rows is the binomials' noise, about sqrt(p (1 - p) / 2667) a
// bin, at most 0.01; three of these.
TEST(Calibration, OfAJudgeThatKnowsItself) {
    Random random(5);
    Calibration calibration;
    for (int i = 0; i < 40000; ++i) {
        const double p = random.uniform();
        calibration.add(p, random.uniform() < p);
    }
    EXPECT_LT(calibration.expected_error(), 0.03);
}

}  // namespace
}  // namespace garam
