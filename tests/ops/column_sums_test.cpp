// Gradients of weights and biases are sums over tokens by way of partial sums in scratch.
#include <gtest/gtest.h>

#include "garam/kernels/cuda/bias.h"
#include "garam/kernels/cuda/norm.h"
#include "garam/ops/bias.h"
#include "garam/ops/cpu_kernels.h"
#include "garam/ops/rms_norm.h"

namespace garam::testing {
namespace {

DeviceProfile profile_of(DeviceKind kind) {
    DeviceProfile profile = detect_cpu_profile();
    profile.kind = kind;
    if (kind == DeviceKind::cuda) {
        profile.compute_capability = 90;
        profile.multiprocessors = 132;
        profile.shared_bytes = 227 << 10;
    }
    return profile;
}

// Plans count on it: the largest micro-batch needs the most.
TEST(ColumnSums, ScratchGrowsWithTheTokens) {
    constexpr std::int64_t kHidden = 48;
    for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda}) {
        std::int64_t norm_before = 0, bias_before = 0;
        for (std::int64_t tokens = 0; tokens <= 5000; ++tokens) {
            const auto device = make_dry_device(profile_of(kind));
            Arena arena(*device, std::int64_t{1} << 40);
            Meter meter;
            Stream stream(*device, arena, meter);
            const auto take = [&](const Shape& shape) {
                return arena.push(DType::f32, shape, Purpose::batch);
            };
            const Tensor x = take({tokens, kHidden}), rstd = take({tokens});
            const Tensor weight = take({kHidden}), gradient = take({kHidden});
            const std::int64_t operands = arena.used();
            bias_backward(stream, x, gradient);
            EXPECT_GE(arena.peak() - operands, bias_before) << tokens << " tokens";
            bias_before = arena.peak() - operands;
            arena.reset_peak();
            rms_norm_backward(stream, x, x, weight, rstd, x, false, gradient);
            EXPECT_GE(arena.peak() - operands, norm_before) << tokens << " tokens";
            norm_before = arena.peak() - operands;
        }
    }
}

TEST(ColumnSums, ScratchHoldsAllPieces) {
    for (std::int64_t rows = 0; rows <= 70000; ++rows) {
        ASSERT_GE(cuda::norm_scratch_pieces(rows), cuda::norm_pieces(rows)) << rows;
        ASSERT_GE(cuda::bias_scratch_pieces(rows), cuda::bias_pieces(rows)) << rows;
        ASSERT_GE(scratch_row_pieces(rows), row_pieces(rows)) << rows;
    }
}

}  // namespace
}  // namespace garam::testing
