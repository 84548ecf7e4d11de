// Keys of Transformers' TrainingArguments that change how a run goes, by whole jobs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "garam/core/error.h"
#include "garam/train/memory_choice.h"
#include "garam/train/prepared_job.h"
#include "testing/cards.h"
#include "train/tiny_job.h"

namespace garam {
namespace {

using testing::TinyJob;

class TrainingKeys : public ::testing::TestWithParam<DeviceProfile> {
  protected:
    static void place(TinyJob& job) { job.config.device = testing::device_key(GetParam()); }
};
GARAM_FOR_CPU_AND_WHOLE_CARDS(TrainingKeys);

struct Recorder : TrainObserver {
    std::vector<double> losses;
    std::vector<EvalReport> evaluations;
    void on_step(const StepReport& report) override { losses.push_back(report.loss); }
    void on_evaluation(const EvalReport& report) override { evaluations.push_back(report); }
};

Recorder record(TinyJob& job) {
    Recorder recorder;
    job.run({&recorder});
    return recorder;
}

std::string refusal_of(TinyJob& job) {
    try {
        job.run();
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

// Noise and smoothing belong to samples and targets: steps are the same however they are cut, but for the
// order of sums (behaviours_test.cpp derives the bound).
TEST_P(TrainingKeys, NoiseAndSmoothingDoNotDependOnTheCut) {
    std::vector<double> whole;
    for (const auto& [batch, accumulation] : {std::pair{11, 1}, {1, 11}, {4, 3}}) {
        TinyJob job;
        place(job);
        job.config.train.per_device_train_batch_size = batch;
        job.config.train.gradient_accumulation_steps = accumulation;
        job.config.train.merge_micro_batches = "false";
        job.config.train.neftune_noise_alpha = 10;
        job.config.train.label_smoothing_factor = 0.2;
        job.config.train.optim = "sgd";
        job.config.train.max_steps = 3;
        const std::vector<double> losses = record(job).losses;
        ASSERT_EQ(losses.size(), 3u);
        if (whole.empty()) whole = losses;
        for (std::size_t i = 0; i < 3; ++i)
            EXPECT_NEAR(losses[i], whole[i], 1e-5 * whole[i]) << batch << " step " << i;
    }
}

TEST_P(TrainingKeys, NoiseIsForTrainingAlone) {
    const auto run = [](std::optional<double> alpha) {
        TinyJob job;
        place(job);
        job.config.train.neftune_noise_alpha = alpha;
        job.config.train.eval_on_start = true;
        job.config.train.max_steps = 1;
        return record(job);
    };
    const Recorder plain = run(std::nullopt);
    const Recorder noisy = run(20);
    EXPECT_NE(noisy.losses, plain.losses);
    EXPECT_EQ(run(20).losses, noisy.losses);
    EXPECT_EQ(run(0).losses, plain.losses);
    EXPECT_EQ(noisy.evaluations.at(0).eval_loss, plain.evaluations.at(0).eval_loss);
}

// A new adapter changes nothing, so that the first losses tell of the base: smoothed, theirs lies between
// the plain loss and the mean of all -log p.
TEST_P(TrainingKeys, SmoothingCountsInTrainingAndEvaluation) {
    const auto run = [](double factor) {
        TinyJob job;
        place(job);
        job.config.train.label_smoothing_factor = factor;
        job.config.train.eval_on_start = true;
        job.config.train.max_steps = 1;
        return record(job);
    };
    const Recorder plain = run(0);
    const Recorder half = run(0.5);
    const Recorder quarter = run(0.25);
    EXPECT_NE(half.evaluations.at(0).eval_loss, plain.evaluations.at(0).eval_loss);
    // The loss is linear in the factor.
    EXPECT_NEAR(quarter.losses.at(0), (plain.losses.at(0) + half.losses.at(0)) / 2,
                1e-5 * plain.losses.at(0));
    EXPECT_NEAR(quarter.evaluations.at(0).eval_loss,
                (plain.evaluations.at(0).eval_loss + half.evaluations.at(0).eval_loss) / 2,
                1e-5 * plain.evaluations.at(0).eval_loss);
}

TEST(TrainingKeysOfAJob, EvaluationAtTheStartDoesNotCountAsBest) {
    TinyJob job;
    job.config.train.eval_on_start = true;
    job.config.train.eval_steps = 4;
    job.config.train.save_steps = 4;
    const Recorder recorder = record(job);
    ASSERT_EQ(recorder.evaluations.size(), 3u);
    EXPECT_EQ(recorder.evaluations[0].step, 0);
    EXPECT_FALSE(recorder.evaluations[0].is_best);
    EXPECT_TRUE(recorder.evaluations[1].is_best);
    // A run that goes on began before.
    std::filesystem::remove_all(job.output() / "checkpoint-8");
    job.config.train.resume_from_checkpoint = "true";
    EXPECT_EQ(record(job).evaluations.at(0).step, 8);

    job.config.data.validation.clear();
    job.config.train.eval_steps.reset();
    EXPECT_EQ(refusal_of(job).find("train.eval_on_start needs data.validation"), 0u);
}

TEST(TrainingKeysOfAJob, ARunGoesOnUnderItsOwnKeysOnly) {
    TinyJob job;
    job.config.train.neftune_noise_alpha = 5;
    job.config.train.max_steps = 4;
    job.run();
    job.config.train.resume_from_checkpoint = "true";
    job.config.train.neftune_noise_alpha = 6;
    EXPECT_NE(refusal_of(job).find("train.neftune_noise_alpha"), std::string::npos);
    job.config.train.neftune_noise_alpha.reset();
    EXPECT_NE(refusal_of(job).find("train.neftune_noise_alpha"), std::string::npos);
}

TEST(TrainingKeysOfAJob, SchedulesAreCheckedBeforeTheRun) {
    TinyJob job;
    job.config.train.lr_scheduler_type = "warmup_stable_decay";
    EXPECT_NE(refusal_of(job).find("needs train.lr_scheduler_kwargs.num_decay_steps"),
              std::string::npos);
    job.config.train.lr_scheduler_kwargs.num_decay_steps = 100;
    EXPECT_NE(refusal_of(job).find("more than the run's 8 steps"), std::string::npos);
    job.config.train.lr_scheduler_kwargs.num_decay_steps = 4;
    EXPECT_EQ(refusal_of(job), "accepted");
}

TEST(TrainingKeysOfAJob, GroupingNeedsAShuffleAndNoPacking) {
    TinyJob job;
    job.config.train.group_by_length = true;
    job.config.data.shuffle = false;
    EXPECT_NE(refusal_of(job).find("data.shuffle"), std::string::npos);
    job.config.data.shuffle = true;
    job.config.train.packing = true;
    EXPECT_NE(refusal_of(job).find("packing"), std::string::npos);
}

TEST(TrainingKeysOfAJob, BatchesAreCutUntilThePlanFits) {
    TinyJob job;
    job.config.train.per_device_train_batch_size = 12;
    job.config.train.gradient_accumulation_steps = 1;
    job.config.train.auto_find_batch_size = true;
    const auto planned = [&](std::int64_t memory) {
        auto prepared = prepare(job.config);
        if (memory > 0) prepared->profile.memory_bytes = memory;
        const MemoryPlan plan = prepared->plan();
        return std::pair{std::move(prepared), plan};
    };
    const auto [whole, large] = planned(0);
    EXPECT_EQ(whole->config.train.per_device_train_batch_size, 12);
    const std::int64_t steps = whole->max_steps;

    // The budget of a processor is 8 tenths.
    const auto [cut, small] = planned(large.total_bytes * 9 / 10 * 10 / 8);
    const TrainConfig& train = cut->config.train;
    EXPECT_LT(train.per_device_train_batch_size, 12);
    EXPECT_EQ(train.per_device_train_batch_size * train.gradient_accumulation_steps, 12);
    EXPECT_LE(small.total_bytes, large.total_bytes * 9 / 10);
    EXPECT_EQ(cut->identity.per_device_train_batch_size, train.per_device_train_batch_size);
    EXPECT_EQ(cut->max_steps, steps);
    EXPECT_TRUE(std::any_of(cut->notes.begin(), cut->notes.end(), [](const std::string& note) {
        return note.starts_with("auto_find_batch_size: 12 rows a pass do not fit");
    }));

    // Where nothing fits, single rows: 12 -> 6 -> 3 -> 1.
    EXPECT_EQ(planned(1).first->config.train.gradient_accumulation_steps, 12);
    // A run goes on as it was cut, whatever is free now.
    auto later = prepare(job.config);
    TrainerState stopped;
    stopped.identity = cut->identity;
    later->plan(&stopped);
    EXPECT_EQ(later->config.train.per_device_train_batch_size, train.per_device_train_batch_size);
    EXPECT_TRUE(differences(later->identity, cut->identity).empty());
}

TEST(TrainingKeysOfAJob, WhatChangesNothingIsSaid) {
    TinyJob job;
    job.config.data.cache = false;  // else the second time tells what is kept
    job.config.data.cache_dir = "";
    const std::size_t before = prepare(job.config)->notes.size();
    job.config.train.torch_compile = true;
    job.config.train.dataloader_pin_memory = false;
    EXPECT_EQ(prepare(job.config)->notes.size(), before + 2);
}

}  // namespace
}  // namespace garam
