// Runs under each of AdamW's names: what may go on from whose checkpoint, and where a fine-tune ends.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "garam/core/error.h"
#include "garam/io/safetensors.h"
#include "garam/runtime/transfer.h"
#include "garam/train/engine.h"
#include "garam/train/prepared_job.h"
#include "testing/cards.h"
#include "testing/test_data.h"
#include "train/tiny_job.h"

namespace garam {
namespace {

using testing::TinyJob;

class OptimizerKinds : public ::testing::TestWithParam<DeviceProfile> {};
GARAM_FOR_CPU_AND_WHOLE_CARDS(OptimizerKinds);

// All weights: the embedding and the head have enough elements for 8 bits.
void configure(TinyJob& job, const char* optim, const DeviceProfile& profile) {
    job.config.device = testing::device_key(profile);
    job.config.train.method = "full";
    job.config.train.optim = optim;
    job.config.train.learning_rate = 1e-3;
}

std::string outcome(TinyJob& job) {
    try {
        job.run();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

// CASES 11, 12.
TEST_P(OptimizerKinds, ACheckpointOfAnotherUpdateIsRefusedByName) {
    TinyJob job;
    configure(job, "adamw_8bit", GetParam());
    job.config.train.save_steps = 4;
    job.run();
    const std::string checkpoint = (job.output() / "checkpoint-4").string();
    const auto states =
        SafetensorsFile::open(job.output() / "checkpoint-4" / "optimizer.safetensors");
    int codes = 0;
    for (const StoredTensor& tensor : states->tensors())
        if (tensor.type == StoredType::u8) ++codes;
    EXPECT_GE(codes, 2);

    job.config.train.resume_from_checkpoint = checkpoint;
    for (const char* other : {"adamw_torch", "paged_adamw_32bit", "sgd"}) {
        job.config.train.optim = other;
        const std::string message = outcome(job);
        EXPECT_NE(message.find("train.optim"), std::string::npos) << message;
        EXPECT_NE(message.find("adamw_8bit"), std::string::npos) << message;
        EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
}

// Where states lie is no part of what a run computes.
TEST_P(OptimizerKinds, PagedAndUnpagedGoOnFromEachOther) {
    for (const auto& [first, second] : {std::pair{"adamw_8bit", "paged_adamw_8bit"},
                                        std::pair{"paged_adamw_8bit", "adamw_bnb_8bit"},
                                        std::pair{"paged_adamw", "adamw_torch"}}) {
        TinyJob whole;
        configure(whole, first, GetParam());
        whole.config.train.save_steps = 4;
        whole.run();
        const auto result = [&] {
            return testing::read_file(whole.output() / "checkpoint-8" / "optimizer.safetensors") +
                   testing::read_file(whole.output() / "model" / "model.safetensors");
        };
        const std::string want = result();
        whole.config.train.resume_from_checkpoint = (whole.output() / "checkpoint-4").string();
        whole.config.train.optim = second;
        EXPECT_EQ(outcome(whole), "");
        EXPECT_EQ(result(), want) << first << ", " << second;
    }
}

// Masters in host memory: less on the card by just that, and no bit changed.
TEST_P(OptimizerKinds, MastersOnTheHostChangeNoBit) {
    TinyJob job;
    job.config.device = testing::device_key(GetParam());
    job.config.train.optim = "paged_adamw_8bit";
    const auto prepared = prepare(job.config);
    DeviceProfile card = GetParam();
    if (!card.is_cuda()) {  // planned as for one
        card.kind = DeviceKind::cuda;
        card.compute_capability = 90;
        card.multiprocessors = 132;
        card.shared_bytes = 99 << 10;
    }
    EngineOptions options[2] = {prepared->engine, prepared->engine};
    options[1].model.masters_on_host = true;
    MemoryPlan plans[2];
    for (const int on_host : {0, 1})
        plans[on_host] =
            plan_memory(card, prepared->files, options[on_host],
                        {.tokens = 32, .longest = 32, .targets = 32, .samples = 1}, 1, {});
    const std::int64_t masters = plans[1].pinned_bytes - plans[0].pinned_bytes;
    EXPECT_GE(masters, plans[0].trainable_elements * 4);
    EXPECT_EQ(plans[0].total_bytes - plans[1].total_bytes, masters);
    const auto adapter = static_cast<std::size_t>(Purpose::adapter);
    EXPECT_EQ(plans[0].by_purpose[adapter] - plans[1].by_purpose[adapter], masters);

    const auto device = make_device(GetParam());
    std::vector<std::vector<float>> learnt[2];
    for (const int on_host : {0, 1}) {
        TrainingEngine engine(*device, prepared->files, options[on_host], std::int64_t{64} << 20);
        TokenBatch batch;
        const std::vector<std::int32_t> ids = {1, 5, 9, 200, 7, 3, 77, 12};
        batch.append(ids, ids, 0);
        for (int step = 0; step < 3; ++step)
            engine.step({batch}, step, 1e-2);
        for (const Parameter& parameter : engine.model().parameters()) {
            const HostTensor host(engine.stream(), parameter.master);
            const float* const values = host.tensor().data<float>();
            learnt[on_host].emplace_back(values, values + host.tensor().elements());
        }
    }
    EXPECT_EQ(learnt[0], learnt[1]);
}

// CASES 10: a fine-tune of all weights of a small model of stories on instructions.
TEST(SlowOptimizerKinds, EightBitsEndWithinOnePercentOfThirtyTwo) {
    GARAM_REQUIRE_DATA("instruct/alpaca_en_demo.json");
    GARAM_REQUIRE_DATA("golden/stories260K-hf/config.json");
    const auto data = testing::data_dir();
    const auto losses_of = [&](const char* optim) {
        TinyJob job;
        JobConfig& c = job.config;
        c.model = (data / "golden" / "stories260K-hf").string();
        c.data.train = {(data / "instruct" / "alpaca_en_demo.json").string()};
        c.data.validation.clear();
        c.data.validation_fraction = 0.1;
        c.train.method = "full";
        c.train.optim = optim;
        c.train.learning_rate = 1e-3;
        c.train.weight_decay = 0.01;
        c.train.lr_scheduler_type = "cosine";
        c.train.warmup_steps = 20;
        c.train.max_length = 256;
        c.train.per_device_train_batch_size = 8;
        c.train.gradient_accumulation_steps = 1;
        c.train.max_steps = 300;
        c.train.eval_on_start = true;
        c.train.eval_steps = 300;
        struct Recorder : TrainObserver {
            std::vector<double> losses;
            void on_evaluation(const EvalReport& report) override {
                losses.push_back(report.eval_loss);
            }
        } recorder;
        job.run({&recorder});
        return recorder.losses;
    };
    const std::vector<double> wide = losses_of("adamw_torch");
    const std::vector<double> narrow = losses_of("adamw_8bit");
    ASSERT_EQ(wide.size(), 2u);
    ASSERT_EQ(narrow.size(), 2u);
    std::cout << "eval_loss " << wide[0] << " at first; " << wide[1] << " with adamw_torch, "
              << narrow[1] << " with adamw_8bit\n";
    EXPECT_EQ(wide[0], narrow[0]);
    EXPECT_LT(wide[1], 0.8 * wide[0]);  // something was learnt
    EXPECT_NE(wide[1], narrow[1]);      // … with states of another kind
    EXPECT_NEAR(narrow[1], wide[1], 0.01 * wide[1]);
}

}  // namespace
}  // namespace garam
