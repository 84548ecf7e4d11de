#include "garam/models/device_batch.h"

#include <gtest/gtest.h>

#include <vector>

namespace garam {
namespace {

template <typename T>
std::vector<T> values_of(const Tensor& tensor) {
    return {tensor.data<T>(), tensor.data<T>() + tensor.elements()};
}
using Ints = std::vector<std::int32_t>;

TokenBatch two_samples() {
    TokenBatch batch;
    batch.append({5, 6, 7}, {kIgnore, 6, 7}, 11);
    batch.append({8, 9}, {8, 9}, 12);
    return batch;
}

class DeviceBatchTest : public ::testing::Test {
  protected:
    std::unique_ptr<Device> device_ = make_cpu_device();
    Arena arena_{*device_, 1 << 20};
    Meter meter_;
    Stream stream_{*device_, arena_, meter_};
};

TEST_F(DeviceBatchTest, ExactShapeHoldsTheBatch) {
    const TokenBatch tokens = two_samples();
    const DeviceBatch batch = upload(stream_, tokens, shape_of(tokens), {.steps_done = 4});
    EXPECT_EQ(values_of<std::int32_t>(batch.ids), (Ints{5, 6, 7, 8, 9}));
    EXPECT_EQ(values_of<std::int32_t>(batch.positions), (Ints{0, 1, 2, 0, 1}));
    EXPECT_EQ(values_of<std::int64_t>(batch.samples),
              (std::vector<std::int64_t>{11, 11, 11, 12, 12}));
    EXPECT_EQ(values_of<std::int32_t>(batch.step), Ints{4});
    EXPECT_EQ(values_of<std::int32_t>(batch.target_rows), (Ints{0, 1, 3}));
    EXPECT_EQ(values_of<std::int32_t>(batch.targets), (Ints{6, 7, 9}));
    EXPECT_EQ(values_of<std::int32_t>(batch.segments.device_cu_q), (Ints{0, 3, 5}));
    EXPECT_EQ(batch.segments.cu_q, (Ints{0, 3, 5}));
}

TEST_F(DeviceBatchTest, ExtraTokensAreASampleOfTheirOwn) {
    const TokenBatch tokens = two_samples();
    const DeviceBatch batch = upload(stream_, tokens, {7, 4, 5}, {});
    EXPECT_EQ(values_of<std::int32_t>(batch.ids), (Ints{5, 6, 7, 8, 9, 0, 0}));
    EXPECT_EQ(values_of<std::int32_t>(batch.segments.device_cu_q), (Ints{0, 3, 5, 7, 7}));
    EXPECT_EQ(values_of<std::int32_t>(batch.target_rows), (Ints{0, 1, 3, -1, -1}));
    EXPECT_EQ(values_of<std::int32_t>(batch.targets), (Ints{6, 7, 9, -1, -1}));
    // Their sample needs a place.
    EXPECT_THROW(upload(stream_, tokens, {7, 2, 5}, {}), Bug);
    EXPECT_THROW(upload(stream_, tokens, {4, 4, 5}, {}), Bug);
}

TEST_F(DeviceBatchTest, LongSamplesTurnByRowsOfTheirOwn) {
    const TokenBatch tokens = two_samples();
    const DeviceBatch alike = upload(stream_, tokens, shape_of(tokens));
    EXPECT_EQ(values_of<std::int32_t>(alike.rotary_rows), (Ints{0, 1, 2, 0, 1}));
    const DeviceBatch batch =
        upload(stream_, tokens, {7, 4, 5}, {.longest_short = 2, .long_rows = 100});
    EXPECT_EQ(values_of<std::int32_t>(batch.rotary_rows), (Ints{100, 101, 102, 0, 1, 0, 0}));
    EXPECT_EQ(values_of<std::int32_t>(batch.positions), (Ints{0, 1, 2, 0, 1, 0, 0}));
}

TEST_F(DeviceBatchTest, CachedKeysComeBeforeTheTokens) {
    TokenBatch tokens;
    tokens.append({5, 6}, {5, 6}, 0);
    const DeviceBatch batch = upload(stream_, tokens, shape_of(tokens), {.cached = 9});
    EXPECT_EQ(values_of<std::int32_t>(batch.segments.device_cu_k), (Ints{0, 11}));
    EXPECT_EQ(batch.segments.cu_k, (Ints{0, 11}));
}

TEST(SharedShape, CoversGrowsAndWastesLittle) {
    BatchShape before;
    for (std::int64_t n = 1; n < 40000; n += 1 + n / 17) {
        const BatchShape exact{n, n / 9 + 1, n - n / 5};
        const BatchShape shared = shared_shape(exact);
        EXPECT_GE(shared.tokens, exact.tokens);
        EXPECT_GT(shared.samples, exact.samples);
        EXPECT_GE(shared.targets, exact.targets);
        EXPECT_LE(shared.tokens, std::max<std::int64_t>(64, n + n / 8));
        EXPECT_EQ(shared_shape({shared.tokens, exact.samples, shared.targets}).tokens,
                  shared.tokens);
        EXPECT_GE(shared.tokens, before.tokens);
        EXPECT_GE(shared.targets, before.targets);
        before = shared;
    }
    // Rows of a common length lose nothing.
    for (const std::int64_t tokens : {512, 1024, 8192, 16384})
        EXPECT_EQ(shared_shape({tokens, 1, tokens}).tokens, tokens);
}

}  // namespace
}  // namespace garam
