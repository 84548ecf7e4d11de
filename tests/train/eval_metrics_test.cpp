// eval.metrics by whole jobs: what evaluations tell of the answers that the model writes.
#include <gtest/gtest.h>

#include <algorithm>

#include "garam/core/error.h"
#include "garam/serve/session.h"
#include "garam/train/prepared_job.h"
#include "testing/cards.h"
#include "train/tiny_job.h"

namespace garam {
namespace {

using testing::read_file;
using testing::TinyJob;

struct Recorder : TrainObserver {
    std::vector<EvalReport> evaluations;
    std::vector<std::string> messages;
    void on_evaluation(const EvalReport& report) override { evaluations.push_back(report); }
    void on_message(std::string_view text) override { messages.emplace_back(text); }
};

double value_of(const EvalReport& report, const std::string& name) {
    for (const auto& [known, value] : report.metrics)
        if (known == name) return value;
    ADD_FAILURE() << "no " << name;
    return -1;
}

// Rows of labels that the text tells by its letters, answered as JSON.
class VerdictJob : public TinyJob {
  public:
    explicit VerdictJob(const DeviceProfile& profile) {
        write_labelled("train.jsonl", 24, 1);
        write_labelled("validation.jsonl", 7, 2);
        config.device = testing::device_key(profile);
        config.data.instruction = "? {text}";
        config.data.answer = R"({"verdict":"{label}"})";
        config.train.max_length = 128;
        config.train.per_device_train_batch_size = 4;
        config.train.gradient_accumulation_steps = 1;
        config.train.eval_steps = 4;
        config.eval.metrics = {"accuracy", "precision", "recall", "f1", "confusion_matrix", "ece"};
        config.eval.max_new_tokens = 24;
    }

  private:
    void write_labelled(const std::string& name, int rows, std::uint64_t seed) const {
        std::ofstream file(dir() / name);
        Random random(seed);
        for (int i = 0; i < rows; ++i) {
            Json row;
            std::string text;
            for (int c = 0; c < 4; ++c)
                text += static_cast<char>((i % 2 == 0 ? 'a' : 'n') + random.below(12));
            row.set("text", text);
            row.set("label", i % 2 == 0 ? "A" : "B");
            file << row.dump() << '\n';
        }
    }
};

class EvalMetrics : public ::testing::TestWithParam<DeviceProfile> {};
GARAM_FOR_CPU_AND_WHOLE_CARDS(EvalMetrics);

TEST_P(EvalMetrics, AreThoseOfTheSavedAdapter) {
    VerdictJob job(GetParam());
    job.config.eval.generate_rows = 5;
    Recorder recorder;
    job.run({&recorder});
    ASSERT_EQ(recorder.evaluations.size(), 2u);
    const EvalReport& last = recorder.evaluations.back();

    Session session({.model = job.config.model,
                     .adapter = job.output() / "adapter",
                     .device = job.config.device,
                     .dtype = "f32"});
    const auto prepared = prepare(job.config);
    ASSERT_EQ(prepared->judged->rows.size(), 5u);
    const Judgement judgement =
        judge(session, *prepared->judged,
              {.max_new_tokens = 24, .eos_ids = session.eos_ids(), .scores = true});
    const MetricValues values = metric_values(job.config.eval, judgement);
    ASSERT_EQ(values.size(), last.metrics.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(values[i].first, last.metrics[i].first);
        // ece is a sum of probabilities, whose logits a card sums in another order where an adapter lies
        // within the weights' matrix.
        EXPECT_NEAR(values[i].second, last.metrics[i].second, 1e-4) << values[i].first;
    }
    EXPECT_EQ(value_of(last, "eval_samples"), 5);
    ASSERT_TRUE(last.confusion.has_value());
    EXPECT_EQ(last.confusion->total(), 5);
    EXPECT_EQ(last.confusion->unparsable(), value_of(last, "eval_unparsable"));

    // metrics.jsonl has them all, under the same names.
    std::ifstream file(job.output() / "metrics.jsonl");
    Json logged;
    for (std::string line; std::getline(file, line);) {
        const Json json = Json::parse(line, "metrics");
        if (json.find("eval_loss") != nullptr) logged = json;
    }
    for (const auto& [name, value] : last.metrics)
        EXPECT_EQ(logged.at(name).number(), value) << name;
    const Json& matrix = logged.at("eval_confusion_matrix");
    EXPECT_EQ(matrix.at("labels").array()[1].string(), "B");
    EXPECT_EQ(matrix.at("counts").array().size(), 2u);
}

TEST_P(EvalMetrics, TrainingIsTheSameWithout) {
    VerdictJob with(GetParam());
    with.run();
    VerdictJob without(GetParam());
    without.config.eval.metrics = {};
    without.run();
    const char* const file = "adapter_model.safetensors";
    EXPECT_EQ(read_file(with.output() / "adapter" / file),
              read_file(without.output() / "adapter" / file));
}

// Answers that can never be whole are told of before training.
TEST_P(EvalMetrics, TooFewNewTokensAreTold) {
    for (const std::int64_t tokens : {15, 16}) {  // {"verdict":"A"} and the end of the turn
        VerdictJob job(GetParam());
        job.config.eval.max_new_tokens = tokens;
        const auto prepared = prepare(job.config);
        std::string notes;
        for (const std::string& note : prepared->notes)
            notes += note + "\n";
        EXPECT_EQ(notes.find("cuts answers off: the longest right one has 16 tokens") !=
                      std::string::npos,
                  tokens < 16)
            << notes;
    }
}

// The KV cache lies in the memory of a step, and where that does not suffice the plan says so.
TEST_P(EvalMetrics, ThePlanHoldsTheAnswers) {
    std::int64_t without = 0;
    for (const std::int64_t tokens : {0, 8, 1500}) {
        VerdictJob job(GetParam());
        testing::write_tiny_model(job.config.model, {.max_positions = 2048});
        job.config.train.max_steps = 2;
        job.config.train.per_device_train_batch_size = 8;
        if (tokens == 0) job.config.eval.metrics = {};
        if (tokens > 0) job.config.eval.max_new_tokens = tokens;
        if (tokens == 1500) {
            job.config.train.per_device_train_batch_size = 1;
            job.config.eval.generate_rows = 1;
        }
        const auto prepared = prepare(job.config);
        const MemoryPlan plan = prepared->plan();
        Recorder recorder;
        const EndReport end = job.run({&recorder});
        if (GetParam().is_cuda())
            EXPECT_LE(end.peak_memory_bytes, plan.total_bytes);
        else
            EXPECT_EQ(end.peak_memory_bytes, plan.total_bytes);
        const bool told = std::any_of(
            recorder.messages.begin(), recorder.messages.end(), [](const std::string& message) {
                return message.find("more than training's steps") != std::string::npos;
            });
        EXPECT_EQ(told, plan.arena_bytes > plan.training_bytes);
        if (tokens == 0) without = plan.arena_bytes;
        if (tokens == 8) {
            EXPECT_EQ(plan.arena_bytes, without);
        }
        if (tokens == 1500) {
            EXPECT_TRUE(told) << plan.arena_bytes;
        }
    }
}

TEST_P(EvalMetrics, TheBestModelIsTheBestInTheMetric) {
    VerdictJob job(GetParam());
    job.config.train.max_steps = 60;
    job.config.train.eval_steps = 5;
    job.config.train.save_steps = 5;
    job.config.train.save_total_limit = 2;
    job.config.train.learning_rate = 2e-2;
    job.config.train.load_best_model_at_end = true;
    job.config.train.metric_for_best_model = "eval_f1_B";
    job.config.train.early_stopping_patience = 4;
    Recorder recorder;
    job.run({&recorder});
    double best = -1;
    std::int64_t step = 0;
    for (const EvalReport& report : recorder.evaluations) {
        const double f1 = value_of(report, "eval_f1_B");
        EXPECT_EQ(report.is_best, f1 > best);
        if (report.is_best) step = report.step;
        best = std::max(best, f1);
    }
    // An untrained model writes no JSON.
    EXPECT_GT(best, 0);
    const char* const file = "adapter_model.safetensors";
    EXPECT_EQ(read_file(job.output() / "adapter" / file),
              read_file(job.output() / ("checkpoint-" + std::to_string(step)) / file));
    // Stopped by the metric: four evaluations after the best, or at the end.
    EXPECT_LE(recorder.evaluations.back().step, std::min<std::int64_t>(step + 20, 60));
}

TEST(EvalMetricsOnResume, AnotherMetricBeginsAnew) {
    const auto state_of = [](const TinyJob& job, int step) {
        return Json::parse_file(job.output() / ("checkpoint-" + std::to_string(step)) /
                                "trainer_state.json");
    };
    VerdictJob job(detect_cpu_profile());
    job.config.train.eval_steps = 2;
    job.config.train.save_steps = 2;
    job.config.train.max_steps = 4;
    job.run();
    EXPECT_EQ(state_of(job, 4).at("metric_for_best_model").string(), "eval_loss");
    job.config.train.resume_from_checkpoint = (job.output() / "checkpoint-2").string();
    job.config.train.metric_for_best_model = "accuracy";
    Recorder recorder;
    job.run({&recorder});
    ASSERT_EQ(recorder.evaluations.size(), 1u);
    EXPECT_TRUE(recorder.evaluations[0].is_best);
    const Json state = state_of(job, 4);
    EXPECT_EQ(state.at("metric_for_best_model").string(), "eval_accuracy");
    EXPECT_TRUE(state.at("greater_is_better").boolean());
    EXPECT_EQ(state.at("best_metric").number(), value_of(recorder.evaluations[0], "eval_accuracy"));
}

TEST(EvalConfig, WhatIsNotEvaluatedIsRefused) {
    const auto refusal = [](void (*change)(JobConfig&)) {
        VerdictJob job(detect_cpu_profile());
        change(job.config);
        try {
            prepare(job.config);
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    const auto expect = [&](void (*change)(JobConfig&), const char* part) {
        EXPECT_NE(refusal(change).find(part), std::string::npos) << refusal(change);
    };
    expect([](JobConfig& c) { c.eval.metrics = {"bleu"}; }, "choose of accuracy, precision");
    expect(
        [](JobConfig& c) {
            c.data.validation = {};
            c.train.eval_steps.reset();
        },
        "eval.metrics needs data.validation");
    expect([](JobConfig& c) { c.eval.verdict_key = ""; }, "eval.verdict_key is empty");
    expect([](JobConfig& c) { c.eval.verdict_key = "label"; }, "there are: verdict");
    expect([](JobConfig& c) { c.eval.positive_label = "C"; }, "none of the labels: A, B");
    expect([](JobConfig& c) { c.train.metric_for_best_model = "f1_C"; }, "eval_f1_B");
    expect(
        [](JobConfig& c) {
            c.eval.metrics = {"f1"};
            c.train.metric_for_best_model = "accuracy";
        },
        "is not evaluated");
    expect(
        [](JobConfig& c) {
            c.eval.metrics = {};
            c.train.metric_for_best_model = "eval_f1";
        },
        "name it in eval.metrics");
    expect([](JobConfig& c) { c.data.answer = "none"; }, "write {label} in it");
    expect([](JobConfig& c) { c.data.instruction = ""; }, "data.answer");
    expect(
        [](JobConfig& c) {
            c.eval.positive_label = "B";
            c.train.metric_for_best_model = "f1";
        },
        "accepted");
}

TEST(EvalConfig, ValuesByName) {
    EvalConfig config;
    config.metrics = {"f1", "accuracy", "ece"};
    Judgement judgement({"ham", "spam"});
    judgement.confusion.add(0, 0);
    judgement.confusion.add(1, 1);
    judgement.confusion.add(1, 0);
    judgement.confusion.add_unparsable(1);
    judgement.calibration.add(0.9, true);
    // ham: precision 1/2, recall 1; spam: precision 1, recall 1/3.
    MetricValues want = {{"eval_accuracy", 0.5},   {"eval_f1", (2.0 / 3 + 0.5) / 2},
                         {"eval_f1_ham", 2.0 / 3}, {"eval_f1_spam", 0.5},
                         {"eval_ece", 1 - 0.9},    {"eval_unparsable", 1},
                         {"eval_samples", 4}};
    EXPECT_EQ(metric_values(config, judgement), want);
    config.positive_label = "spam";
    want[1].second = 0.5;
    EXPECT_EQ(metric_values(config, judgement), want);
    EXPECT_TRUE(greater_is_better("f1"));
    EXPECT_FALSE(greater_is_better("loss"));
    EXPECT_FALSE(greater_is_better("eval_ece"));
    EXPECT_FALSE(greater_is_better("unparsable"));
}

}  // namespace
}  // namespace garam
