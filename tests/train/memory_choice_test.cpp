#include "garam/train/memory_choice.h"

#include <gtest/gtest.h>

#include "garam/core/error.h"
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
                    (choice.merged == 1 && choice.recompute == Recompute::offload))
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

// A model deep enough for inputs of blocks to matter, with a micro-batch of its own.
class OffloadChoiceTest : public ::testing::Test {
  protected:
    static constexpr std::int64_t kLayers = 24;
    OffloadChoiceTest() {
        testing::TinyModel model;
        model.num_layers = kLayers;
        write_tiny_model(tiny_.dir() / "model", model);
        job_ = prepare(tiny_.config);
        bounds_ = merged_bounds(job_->training_bounds, 64);
    }
    MemoryPlan plan(const DeviceProfile& profile, Recompute recompute) {
        EngineOptions engine = job_->engine;
        engine.recompute = recompute;
        return plan_memory(profile, job_->files, engine, bounds_, 1, {});
    }
    MemoryChoice choose(const DeviceProfile& profile) {
        MemoryQuestion question{profile, job_->files, job_->engine, bounds_, {}, 1};
        question.chooses_recompute = true;
        return choose_memory(question);
    }

    testing::TinyJob tiny_{std::vector<int>(16, 31)};
    std::unique_ptr<PreparedJob> job_;
    BatchBounds bounds_;
};

TEST_F(OffloadChoiceTest, InputsOfBlocksMoveToPinnedMemory) {
    const DeviceProfile profile = card(std::int64_t{64} << 30);
    const MemoryPlan kept = plan(profile, Recompute::block);
    const MemoryPlan moved = plan(profile, Recompute::offload);
    const BatchShape shape = shared_shape({bounds_.tokens, bounds_.samples, bounds_.targets});
    const std::int64_t each =
        align_up(shape.tokens * job_->files.config().at("hidden_size").integer() * 4);
    const std::int64_t inputs = kLayers + 1 - BlockOffload::kSlots;
    EXPECT_EQ(kept.total_bytes - moved.total_bytes, inputs * each);
    EXPECT_EQ(moved.offload_bytes, inputs * each);
    EXPECT_EQ(kept.offload_bytes, 0);
    EXPECT_EQ(moved.pinned_bytes - kept.pinned_bytes, inputs * each);
    // Batches wait in pinned memory too.
    EXPECT_GT(kept.batch_bytes, 0);
    EXPECT_GE(kept.pinned_bytes, 4 * kept.batch_bytes);
}

TEST_F(OffloadChoiceTest, TheLastResortWhereTheHostHasRoom) {
    const std::int64_t driver = std::int64_t{512} << 20;
    const DeviceProfile large = card(std::int64_t{64} << 30);
    const MemoryPlan kept = plan(large, Recompute::block);
    const MemoryPlan moved = plan(large, Recompute::offload);
    EXPECT_EQ(choose(card(kept.total_bytes + driver)).recompute, Recompute::block);
    DeviceProfile small = card(kept.total_bytes - 1 + driver);
    const MemoryChoice choice = choose(small);
    EXPECT_EQ(choice.recompute, Recompute::offload);
    EXPECT_EQ(choice.plan.total_bytes, moved.total_bytes);
    small.host_bytes = 2 * moved.pinned_bytes;
    EXPECT_EQ(choose(small).recompute, Recompute::offload);
    small.host_bytes -= 2;
    EXPECT_EQ(choose(small).recompute, Recompute::block);
}

// Where not even offload fits, tiles: large ones first. A run that goes on has those that it began with.
TEST_F(OffloadChoiceTest, TilesAreTheVeryLast) {
    const std::int64_t driver = std::int64_t{512} << 20;
    const DeviceProfile large = card(std::int64_t{64} << 30);
    const MemoryPlan moved = plan(large, Recompute::offload);
    const MemoryChoice choice = choose(card(moved.total_bytes - 1 + driver));
    EXPECT_EQ(choice.recompute, Recompute::offload);
    EXPECT_EQ(choice.tile, 2048);
    EXPECT_LT(choice.plan.total_bytes, moved.total_bytes);
    EXPECT_EQ(choose(card(choice.plan.total_bytes - 1 + driver)).tile, 512);

    MemoryQuestion question{large, job_->files, job_->engine, bounds_, {}, 1};
    question.chooses_recompute = true;
    question.tile = 512;
    const MemoryChoice resumed = choose_memory(question);
    EXPECT_EQ(resumed.recompute, Recompute::block);
    EXPECT_EQ(resumed.tile, 512);
    question.chooses_recompute = false;
    question.engine.recompute = Recompute::nothing;
    EXPECT_EQ(choose_memory(question).tile, 0);
    question.tile.reset();
    question.engine.recompute = Recompute::block;
    question.in_tiles = true;
    EXPECT_EQ(choose_memory(question).tile, 2048);
}

// In tiles a longer sample costs what docs/architecture.md counts, and nothing as wide as the MLP.
TEST_F(OffloadChoiceTest, BytesOfATokenInTiles) {
    testing::TinyModel model;
    model.hidden_size = 256;
    model.intermediate_size = 2048;
    model.num_layers = 4;
    model.num_heads = 4;
    model.num_kv_heads = 2;
    model.head_dim = 64;
    write_tiny_model(tiny_.dir() / "wide", model);
    const ModelFiles files = ModelFiles::open(tiny_.dir() / "wide");
    EngineOptions engine = job_->engine;
    engine.model.compute = DType::bf16;
    engine.recompute = Recompute::offload;
    engine.tile = 512;
    const auto arena = [&](std::int64_t tokens) {
        engine.model.max_positions = tokens;
        return plan_memory(card(std::int64_t{64} << 30), files, engine, {tokens, tokens, tokens, 1},
                           1, {})
            .arena_bytes;
    };
    // Both are whole shapes (models/device_batch.h).
    const std::int64_t few = std::int64_t{1} << 13;
    const std::int64_t many = std::int64_t{1} << 15;
    const double each =
        static_cast<double>(arena(many) - arena(few)) / static_cast<double>(many - few);
    const double h = 256, q = 256, kv = 256;
    const double counted = 4 * h + 2 * h + 2 * (q + kv) + 4 * q;
    EXPECT_GT(each, counted);
    // Numbers of tokens and targets, lse and delta; tails, masks and the adapters' partial sums.
    EXPECT_LT(each, counted + 100 + 2 * 3 * 128 + 300);
    EXPECT_LT(each, counted + 2 * 2048);  // one row of gate
}

TEST_F(OffloadChoiceTest, TheLongestSampleFitsAndALongerOneDoesNot) {
    const DeviceProfile profile = card(std::int64_t{592} << 20);  // 80 MiB beside the driver's
    MemoryQuestion question{profile, job_->files, job_->engine, bounds_, {}, 1};
    question.engine.recompute = Recompute::offload;
    question.in_tiles = true;
    const std::int64_t longest = longest_sample(question);
    EXPECT_GT(longest, 5000);
    const auto fits = [&](std::int64_t tokens) {
        question.training = {tokens, tokens, tokens, 1};
        question.engine.model.max_positions = tokens;
        return choose_memory(question).fits;
    };
    EXPECT_TRUE(fits(longest));
    EXPECT_FALSE(fits(longest + longest / 1000 + 4096));
    question.in_tiles = false;
    EXPECT_LT(longest_sample(question), longest);
}

// Whoever names a policy gets it, or is told that it does not fit; however the step is cut.
TEST_F(OffloadChoiceTest, ANamedPolicyIsNotExchanged) {
    DeviceProfile profile = card(std::int64_t{64} << 30);
    profile.host_bytes = 2;  // no room for pinned memory
    MemoryQuestion question{profile, job_->files, job_->engine, bounds_, {}, 4};
    question.engine.recompute = Recompute::offload;
    for (const std::int64_t merged : {0, 2}) {
        question.merged = merged;
        const MemoryChoice choice = choose_memory(question);
        EXPECT_EQ(choice.recompute, Recompute::offload);
        EXPECT_EQ(choice.merged, merged > 0 ? merged : 1);
        EXPECT_FALSE(choice.fits);
    }
}

TEST_F(OffloadChoiceTest, IsForCards) {
    DeviceProfile host = detect_cpu_profile();
    host.memory_bytes = 1;  // nothing fits
    EXPECT_EQ(choose(host).recompute, Recompute::block);
    tiny_.config.train.gradient_checkpointing = "offload";
    try {
        prepare(tiny_.config);
        FAIL();
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("offload is for cards"), std::string::npos)
            << error.what();
    }
}

// After start-up a run takes no more pinned memory than was planned, whatever batches come.
TEST_F(OffloadChoiceTest, NoPinnedMemoryIsTakenAfterTheStart) {
    const DeviceProfile profile = card(std::int64_t{64} << 30);
    EngineOptions options = job_->engine;
    options.recompute = Recompute::offload;
    const MemoryPlan moved = plan(profile, Recompute::offload);
    const auto device = make_dry_device(profile);
    TrainingEngine engine(*device, job_->files, options, moved);
    const PinnedUse reserved = device->pinned();
    EXPECT_EQ(reserved.current, moved.pinned_bytes);
    for (std::int64_t step = 0; step < 6; ++step)
        engine.step(merge_micro_batches(job_->loader->step(step % 4), 2), step, 1e-3);
    EXPECT_EQ(device->pinned().current, reserved.current);
    EXPECT_EQ(device->pinned().peak, reserved.peak);
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
