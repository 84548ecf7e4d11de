#include "garam/train/step_time.h"

#include <gtest/gtest.h>

namespace garam {
namespace {

DeviceProfile h200() {
    DeviceProfile profile;
    profile.kind = DeviceKind::cuda;
    profile.compute_capability = 90;
    profile.multiprocessors = 132;
    return profile;
}
constexpr std::int64_t kTokens = 1 << 20;  // a pass so large that nothing idles

double seconds_of(const char* op, double flops, double bytes, std::int64_t calls) {
    Meter::Table ops;
    Meter::Entry& entry = ops[{"forward", op}];
    entry.cost.flops = flops;
    entry.cost.bytes_read = bytes;
    entry.calls = calls;
    return step_time(h200(), ops, kTokens).seconds();
}

// docs/benchmarks.md has the measured ones.
TEST(StepTime, AttentionIsSlowerThanProducts) {
    const double forward = 223e-6, backward = 633e-6;
    EXPECT_NEAR(seconds_of("attention_forward", 385e12 * forward, 0, 1) / forward, 1, 0.25);
    EXPECT_NEAR(seconds_of("attention_backward", 339e12 * backward, 0, 1) / backward, 1, 0.25);
    EXPECT_GT(seconds_of("attention_forward", 1e15, 0, 1), 2 * seconds_of("matmul", 1e15, 0, 1));
}

TEST(StepTime, AnOpTakesTheLongerOfArithmeticAndBytes) {
    const double by_flops = seconds_of("matmul", 1e15, 0, 1),
                 by_bytes = seconds_of("matmul", 0, 1e13, 1);
    EXPECT_GT(by_bytes, by_flops);
    EXPECT_DOUBLE_EQ(seconds_of("matmul", 1e15, 1e13, 1), by_bytes);
}

TEST(StepTime, LaunchesCount) {
    EXPECT_NEAR(seconds_of("matmul", 1e12, 0, 1001) - seconds_of("matmul", 1e12, 0, 1), 1000 * 2e-6,
                1e-9);
}

TEST(StepTime, DecodingRunsBesideProducts) {
    const double decoding = seconds_of("dequantize", 0, 1e12, 1),
                 other = seconds_of("matmul", 0, 1e12, 1);
    EXPECT_GT(decoding, 0);
    EXPECT_LT(decoding, 0.6 * other);
}

TEST(StepTime, CopiesCountWhereTheyTakeLongerThanTheRest) {
    StepTime time;
    time.ops = 2;
    time.copies = 1;
    EXPECT_EQ(time.seconds(), 2);
    time.copies = 3;
    EXPECT_EQ(time.seconds(), 3);
    EXPECT_NEAR(copy_seconds(h200(), 25e9), 1, 0.5);
}

}  // namespace
}  // namespace garam
