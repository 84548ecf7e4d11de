#include "garam/train/memory_choice.h"

#include <gtest/gtest.h>

#include "garam/train/engine.h"
#include "garam/train/prepared_job.h"
#include "train/tiny_job.h"

namespace garam {
namespace {

// A card to plan for; there need not be one.
DeviceProfile card(std::int64_t free_bytes) {
    DeviceProfile profile;
    profile.name = "a card";
    profile.kind = DeviceKind::cuda;
    profile.fast_bf16 = true;
    profile.compute_capability = 80;
    profile.multiprocessors = 108;
    profile.shared_bytes = 99 << 10;
    profile.memory_bytes = profile.free_bytes = free_bytes;
    return profile;
}

TokenBatch batch_of(const std::vector<int>& lengths, std::int64_t first_sample) {
    TokenBatch batch;
    for (const int length : lengths) {
        std::vector<std::int32_t> ids;
        for (int t = 0; t < length; ++t)
            ids.push_back(length * 10 + t);
        batch.append(ids, ids, first_sample++);
    }
    return batch;
}

TEST(MergeMicroBatches, LaysSamplesEndToEnd) {
    const std::vector<TokenBatch> given = {batch_of({2, 3}, 0), batch_of({4}, 2), batch_of({1}, 3)};
    const std::vector<TokenBatch> merged = merge_micro_batches(given, 2);
    ASSERT_EQ(merged.size(), 2u);
    const TokenBatch whole = batch_of({2, 3, 4}, 0);
    EXPECT_EQ(merged[0].ids, whole.ids);
    EXPECT_EQ(merged[0].targets, whole.targets);
    EXPECT_EQ(merged[0].positions, whole.positions);
    EXPECT_EQ(merged[0].cu_seqlens, whole.cu_seqlens);
    EXPECT_EQ(merged[0].sample_ids, whole.sample_ids);
    EXPECT_EQ(merged[1].ids, given[2].ids);
}

class MemoryChoiceTest : public ::testing::Test {
  protected:
    MemoryChoice choose(std::int64_t free_bytes, bool auto_recompute) {
        const DeviceProfile profile = card(free_bytes);
        MemoryQuestion question{profile, job_->files, job_->engine, job_->training_bounds, {}, 4};
        question.chooses_recompute = auto_recompute;
        return choose_memory(question);
    }
    // Beside what choose_memory leaves to the driver.
    static constexpr std::int64_t kDriver = std::int64_t{512} << 20;

    testing::TinyJob tiny_{std::vector<int>(16, 31)};
    std::unique_ptr<PreparedJob> job_ = prepare(tiny_.config);
};

TEST_F(MemoryChoiceTest, MergesAllWhereMemoryIsFree) {
    const MemoryChoice choice = choose(std::int64_t{64} << 30, true);
    EXPECT_EQ(choice.merged, 4);
    EXPECT_EQ(choice.plan.total_bytes,
              choose(choice.plan.total_bytes + kDriver, false).plan.total_bytes);
}

TEST_F(MemoryChoiceTest, NeverPlansBeyondWhatIsFreeWhereSomethingFits) {
    const MemoryChoice most = choose(std::int64_t{64} << 30, false);
    for (std::int64_t free = most.plan.total_bytes; free > most.plan.total_bytes / 2;
         free -= most.plan.total_bytes / 40) {
        const MemoryChoice choice = choose(free + kDriver, true);
        EXPECT_TRUE(choice.plan.total_bytes <= free ||
                    (choice.merged == 1 && choice.recompute == Recompute::block))
            << free << ": " << choice.plan.total_bytes << " " << name_of(choice.recompute);
    }
}

TEST_F(MemoryChoiceTest, PoliciesNeedLessAndLess) {
    const DeviceProfile profile = card(std::int64_t{64} << 30);
    std::int64_t before = INT64_MAX;
    // Recompute::block holds one whole block again, which this model of two layers does not outweigh.
    for (const Recompute recompute :
         {Recompute::nothing, Recompute::norms_and_activation, Recompute::gate_up}) {
        EngineOptions engine = job_->engine;
        engine.recompute = recompute;
        const BatchBounds bounds = merged_bounds(job_->training_bounds, 8);
        const std::int64_t arena =
            plan_memory(profile, job_->files, engine, bounds, 1, {}).arena_bytes;
        EXPECT_LT(arena, before) << name_of(recompute);
        before = arena;
    }
}

// The loss is a sum over all targets, so merging changes nothing but the order of sums.
TEST_F(MemoryChoiceTest, MergedStepsAreTheSameSteps) {
    const auto device = make_cpu_device();
    const BatchBounds bounds = merged_bounds(job_->training_bounds, 2);
    const std::int64_t arena =
        plan_memory(device->profile(), job_->files, job_->engine, bounds, 2, {}).arena_bytes;
    TrainingEngine apart(*device, job_->files, job_->engine, arena);
    TrainingEngine merged(*device, job_->files, job_->engine, arena);
    for (std::int64_t step = 0; step < 4; ++step) {
        const std::vector<TokenBatch> batches = job_->loader->step(step);
        const auto want = apart.step(batches, step, 1e-2);
        const auto got = merged.step(merge_micro_batches(batches, 2), step, 1e-2);
        EXPECT_EQ(got.targets, want.targets);
        EXPECT_NEAR(got.loss_sum, want.loss_sum, 1e-5 * want.loss_sum) << step;
        EXPECT_NEAR(got.grad_norm, want.grad_norm, 1e-4 * want.grad_norm) << step;
    }
}

}  // namespace
}  // namespace garam
