#include "garam/train/memory_choice.h"

#include <gtest/gtest.h>

#include "garam/core/error.h"
#include "garam/train/engine.h"
#include "garam/train/memory_table.h"
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
        EXPECT_EQ(choice.plan.peak_bytes() <= free, choice.fits)
            << free << ": " << choice.plan.total_bytes << " " << name_of(choice.recompute);
        if (!choice.fits) {
            EXPECT_EQ(choice.merged, 1);
        }
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

TEST_F(MemoryChoiceTest, MastersWaitOnTheHostWhereNothingElseFits) {
    const MemoryChoice smallest = choose(kDriver + 1, true);
    EXPECT_FALSE(smallest.fits);
    EXPECT_TRUE(smallest.masters_on_host);
    const std::int64_t least = smallest.plan.peak_bytes();
    const MemoryChoice moved = choose(least + kDriver, true);
    EXPECT_TRUE(moved.fits);
    EXPECT_TRUE(moved.masters_on_host);
    const MemoryChoice kept = choose(2 * least + kDriver, true);
    EXPECT_TRUE(kept.fits);
    EXPECT_FALSE(kept.masters_on_host);
    EXPECT_GT(moved.plan.pinned_bytes, kept.plan.pinned_bytes);
    EXPECT_FALSE(choose(least - 1 + kDriver, true).fits);
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

// Ahead of tiles, the states of the optimiser go to the host, named so or not.
TEST_F(OffloadChoiceTest, StatesArePagedWhereOnlyTilesWouldFit) {
    tiny_.config.lora.r = 512;
    job_ = prepare(tiny_.config);
    ASSERT_FALSE(job_->engine.optimizer.paged);
    const std::int64_t driver = std::int64_t{512} << 20;
    const MemoryPlan kept = plan(card(std::int64_t{64} << 30), Recompute::offload);
    const MemoryChoice fitting = choose(card(kept.total_bytes + driver));
    EXPECT_FALSE(fitting.paged_states);
    EXPECT_EQ(fitting.tile, 0);
    const MemoryChoice paged = choose(card(kept.total_bytes - 1 + driver));
    EXPECT_TRUE(paged.fits);
    EXPECT_TRUE(paged.paged_states);
    EXPECT_EQ(paged.tile, 0);
    EXPECT_FALSE(paged.masters_on_host);

    EngineOptions engine = job_->engine;
    paged.apply_to(engine);
    EXPECT_TRUE(engine.optimizer.paged);
    const DeviceProfile large = card(std::int64_t{64} << 30);
    EXPECT_EQ(plan_memory(large, job_->files, engine, bounds_, 1, {}).total_bytes,
              paged.plan.total_bytes);

    job_->engine.optimizer.kind = OptimizerKind::sgd;
    const MemoryPlan sgd = plan(large, Recompute::offload);
    EXPECT_FALSE(choose(card(sgd.total_bytes - 1 + driver)).paged_states);
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

// Where the host has no room for states and masters, they stay on the card, and a sample is as long as it may be there.
TEST_F(OffloadChoiceTest, TheLongestSampleIsToldWhereTheHostIsSmall) {
    tiny_.config.lora.r = 64;
    job_ = prepare(tiny_.config);
    const DeviceProfile profile = card(std::int64_t{592} << 20);
    MemoryQuestion question{profile, job_->files, job_->engine, bounds_, {}, 1};
    question.engine.recompute = Recompute::block;
    const auto choose = [&](std::int64_t tokens) {
        question.training = {tokens, tokens, tokens, 1};
        question.engine.model.max_positions = tokens;
        return choose_memory(question);
    };
    const std::int64_t free = longest_sample(question);
    const MemoryChoice small = choose(1024);
    ASSERT_FALSE(small.paged_states);
    question.host_limit = small.plan.pinned_bytes;
    const std::int64_t longest = longest_sample(question);
    EXPECT_GE(longest, 1024);
    EXPECT_LT(longest, free);
    EXPECT_TRUE(choose(longest).fits);
    EXPECT_FALSE(choose(longest + longest / 1000 + 64).fits);
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

// Batches alone wait in pinned memory: no policy does without.
TEST_F(OffloadChoiceTest, NothingFitsAHostWithoutRoom) {
    DeviceProfile profile = card(std::int64_t{64} << 30);
    profile.host_bytes = 2;
    const MemoryChoice choice = choose(profile);
    EXPECT_FALSE(choice.fits);
    EXPECT_GT(choice.plan.total_bytes, 0);
    EXPECT_GT(choice.plan.pinned_bytes, 1);
}

TEST_F(OffloadChoiceTest, AHostLimitCountsInsteadOfHalfTheHost) {
    DeviceProfile profile = card(std::int64_t{64} << 30);
    profile.host_bytes = 2;
    MemoryQuestion question{profile, job_->files, job_->engine, bounds_, {}, 1, true, 1};
    const MemoryChoice none = choose_memory(question);
    EXPECT_FALSE(none.fits);
    EXPECT_EQ(none.pinned_room, 1);
    question.host_limit = none.plan.pinned_bytes;
    EXPECT_TRUE(choose_memory(question).fits);
    question.host_limit = 1;
    EXPECT_FALSE(choose_memory(question).fits);
}

// What the host has no room for is no reason to send more there, nor is such a plan the smallest.
TEST_F(OffloadChoiceTest, NothingMovesToAHostThatIsTooSmall) {
    const DeviceProfile profile = card(std::int64_t{64} << 30);
    MemoryQuestion question{profile, job_->files, job_->engine, bounds_, {}, 1};
    for (const bool chooses : {true, false}) {
        question.chooses_recompute = chooses;
        question.engine.recompute = Recompute::block;
        question.host_limit = 0;
        const std::int64_t needed = choose_memory(question).plan.pinned_bytes;
        question.host_limit = needed - 1;
        const MemoryChoice choice = choose_memory(question);
        EXPECT_FALSE(choice.fits);
        EXPECT_FALSE(choice.paged_states);
        EXPECT_FALSE(choice.masters_on_host);
        EXPECT_EQ(choice.plan.pinned_bytes, needed);
    }
    // Nor where the card is too small, too.
    const DeviceProfile small = card((std::int64_t{512} << 20) + 1);
    MemoryQuestion both{small, job_->files, job_->engine, bounds_, {}, 1, true};
    both.host_limit = 1;
    const std::int64_t least = choose_memory(both).plan.pinned_bytes;
    EXPECT_EQ(least, plan(small, Recompute::block).pinned_bytes);
    both.host_limit = least;
    const MemoryChoice choice = choose_memory(both);
    EXPECT_FALSE(choice.fits);
    EXPECT_LE(choice.plan.pinned_bytes, least);
}

// The limit of the host is kept whether the device's is named or not, and told at the start.
TEST_F(OffloadChoiceTest, TheHostLimitIsKeptWithoutOneOfTheDevice) {
    job_->profile = card(std::int64_t{64} << 30);
    job_->training_bounds = bounds_;
    job_->engine.recompute = Recompute::offload;
    job_->config.train.merge_micro_batches = "false";
    const std::int64_t needed = job_->plan().pinned_bytes;
    ASSERT_GT(needed, 2 << 20);
    job_->config.memory_host_limit = std::to_string((needed >> 20) + 1) + "MiB";
    EXPECT_EQ(job_->plan().pinned_bytes, needed);
    job_->config.memory_host_limit = std::to_string(needed >> 20) + "MiB";
    try {
        job_->plan();
        FAIL();
    } catch (const Error& error) {
        const std::string message = error.what();
        EXPECT_TRUE(message.starts_with("memory.host_limit: " + job_->config.memory_host_limit))
            << message;
        EXPECT_NE(message.find(std::to_string((needed >> 20) + 1) + " MiB: raise it"),
                  std::string::npos)
            << message;
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

// A base in 4 bits on a card that need not be there.
class QuantizedChoiceTest : public ::testing::Test {
  protected:
    static constexpr std::int64_t kLayers = 12;
    QuantizedChoiceTest() {
        testing::TinyModel model;
        model.num_layers = kLayers;
        model.hidden_size = 64;
        model.intermediate_size = 160;
        write_tiny_model(tiny_.dir() / "model", model);
        tiny_.config.four_bit.load_in_4bit = true;
        tiny_.config.four_bit.quant_type = "nf4";
        tiny_.config.train.bf16 = true;
        job_ = prepare(tiny_.config);
    }
    MemoryChoice choose(std::int64_t limit, bool auto_recompute = true) {
        const DeviceProfile profile = card(std::int64_t{64} << 30);
        MemoryQuestion question{profile, job_->files, job_->engine, job_->training_bounds, {}, 4};
        question.chooses_recompute = auto_recompute;
        question.limit = limit;
        return choose_memory(question);
    }

    testing::TinyJob tiny_{std::vector<int>(16, 31)};
    std::unique_ptr<PreparedJob> job_;
};

TEST_F(QuantizedChoiceTest, AllIsDecodedWhereMemoryIsFree) {
    const MemoryChoice choice = choose(0);
    EXPECT_EQ(choice.plan.streamable_projections, 4 * kLayers);
    EXPECT_EQ(choice.plan.resident_projections, 4 * kLayers);
    EXPECT_EQ(choice.recompute, Recompute::nothing);
    EXPECT_EQ(choice.merged, 4);
    EXPECT_EQ(choice.plan.step_time.decoding, 0);
}

// The plan stays within the limit as long as anything does, a tighter one is not faster, and what is chosen is
// what the engine reserves.
TEST_F(QuantizedChoiceTest, TheLimitIsKept) {
    const MemoryChoice most = choose(0);
    double seconds = 0;
    std::int64_t resident = most.plan.resident_projections;
    bool streams = false;
    for (std::int64_t limit = most.plan.peak_bytes(); limit > most.plan.peak_bytes() / 4;
         limit -= most.plan.peak_bytes() / 25) {
        const MemoryChoice choice = choose(limit);
        EXPECT_EQ(choice.room, limit);
        if (!choice.fits) break;
        EXPECT_LE(choice.plan.peak_bytes(), limit);
        EXPECT_GE(choice.plan.step_time.seconds(), 0.99 * seconds);
        seconds = std::max(seconds, choice.plan.step_time.seconds());
        streams = streams || choice.plan.resident_projections < resident;
        const DeviceProfile profile = card(std::int64_t{64} << 30);
        const auto device = make_dry_device(profile);
        EngineOptions options = job_->engine;
        options.recompute = choice.recompute;
        options.model.resident_projections = choice.resident_projections;
        TrainingEngine engine(*device, job_->files, options, choice.plan);
        for (std::int64_t step = 0; step < 3; ++step)
            engine.step(merge_micro_batches(job_->loader->step(step), choice.merged), step, 1e-3);
        EXPECT_EQ(device->memory().peak, choice.plan.peak_bytes());
    }
    EXPECT_TRUE(streams);
}

// A named policy is kept: what is decoded gives way.
TEST_F(QuantizedChoiceTest, AsManyStayDecodedAsFit) {
    const MemoryChoice all = choose(0, false);
    std::int64_t before = all.plan.resident_projections;
    for (std::int64_t limit = all.plan.total_bytes - 1; limit > 0; limit -= 40000) {
        const MemoryChoice choice = choose(limit, false);
        if (!choice.fits) break;
        EXPECT_EQ(choice.recompute, Recompute::nothing);
        if (choice.merged != all.merged) break;
        EXPECT_LE(choice.plan.resident_projections, before);
        before = choice.plan.resident_projections;
    }
    EXPECT_EQ(before, 0);
}

TEST(MemoryLimit, IsANumberWithItsUnit) {
    EXPECT_EQ(memory_limit_bytes("auto"), 0);
    EXPECT_EQ(memory_limit_bytes("6GB"), 6000000000);
    EXPECT_EQ(memory_limit_bytes("5.5 GiB"), 5905580032);
    EXPECT_EQ(memory_limit_bytes("900MB"), 900000000);
    EXPECT_EQ(memory_limit_bytes("1MiB"), 1 << 20);
    const auto refusal = [](const char* limit) -> std::string {
        try {
            return std::to_string(memory_limit_bytes(limit));
        } catch (const Error& error) {
            return error.what();
        }
    };
    EXPECT_NE(refusal("1MB").find("is less than a MiB"), std::string::npos);
    EXPECT_NE(refusal("1e300GB").find("is more than an EiB"), std::string::npos);
    EXPECT_NE(refusal("nanGB").find("is not supported"), std::string::npos);
    for (const char* const wrong : {"", "6", "GB", "6G", "-6GB", "0GB", "nanGB", "infGB", "1e30GB",
                                    "6GB ", "6 gb", "0x10GB", "100000"}) {
        try {
            memory_limit_bytes(wrong);
            ADD_FAILURE() << wrong;
        } catch (const Error& error) {
            EXPECT_NE(std::string(error.what()).find("memory.limit"), std::string::npos);
        }
    }
}

// On the processor too: nothing is reserved where the plan does not fit.
TEST(MemoryLimit, IsToldAtTheStart) {
    testing::TinyJob tiny;
    testing::TinyModel model;
    model.hidden_size = 256;
    model.intermediate_size = 512;
    write_tiny_model(tiny.dir() / "model", model);
    const auto job = prepare(tiny.config);
    const std::int64_t needed = job->plan().total_bytes;
    ASSERT_GT(needed, 2 << 20);
    tiny.config.memory_limit = std::to_string((needed >> 20) + 1) + "MiB";
    EXPECT_EQ(prepare(tiny.config)->plan().total_bytes, needed);
    tiny.config.memory_limit = std::to_string(needed >> 20) + "MiB";
    try {
        train(tiny.config, "", {});
        FAIL();
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("memory.limit"), std::string::npos)
            << error.what();
        EXPECT_NE(std::string(error.what()).find("gradient_checkpointing=auto"), std::string::npos)
            << error.what();
    }
}

// The table says of every byte what it is for.
TEST(MemoryTable, AddsUp) {
    testing::TinyJob tiny;
    const MemoryPlan plan = prepare(tiny.config)->plan();
    const std::string table = memory_table(plan, "a card", 6000000000);
    EXPECT_TRUE(table.starts_with("peak memory on a card, by purpose:\n")) << table;
    std::int64_t sum = 0;
    for (const std::int64_t bytes : plan.by_purpose)
        sum += bytes;
    EXPECT_EQ(sum, plan.total_bytes);
    for (const std::int64_t bytes : plan.by_purpose)
        if (bytes > 0) {
            EXPECT_NE(table.find(" " + std::to_string(bytes) + " bytes"), std::string::npos);
        }
    EXPECT_NE(table.find("6000000000 bytes  memory.limit"), std::string::npos);
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
