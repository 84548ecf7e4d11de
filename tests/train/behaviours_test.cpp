// What trainers of this kind got wrong in public (numbers are those of the reference data's CASES), shown
// right by whole jobs: on the processor and on each card.
//
// Bounds of what differs by the order of sums alone: the gradients of these models pass through some ten
// sums of up to 300 terms in fp32, whose errors of random sign gather to sqrt(10 * 300) * 2^-24 = 3.3e-6 of
// their size. A loss is a mean of such numbers: three times that is allowed. A gradient's norm passes
// forward and backward, and three steps of SGD carry the differences on: thirty times.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "garam/core/error.h"
#include "garam/io/peft_adapter.h"
#include "garam/train/checkpoint.h"
#include "testing/cards.h"
#include "testing/golden_batch.h"
#include "testing/test_data.h"
#include "train/tiny_job.h"

namespace garam {
namespace {

using testing::TinyJob;

constexpr double kLoss = 1e-5;
constexpr double kGradient = 1e-4;

class Behaviours : public ::testing::TestWithParam<DeviceProfile> {
  protected:
    static void place(TinyJob& job) { job.config.device = testing::device_key(GetParam()); }
};
GARAM_FOR_CPU_AND_WHOLE_CARDS(Behaviours);

// What three steps of SGD over the same rows leave. (Adam's first step is lr * g / (|g| + eps), which tells
// nothing of the gradient's size.)
struct ThreeSteps {
    std::vector<double> losses;
    std::vector<double> norms;
    std::vector<float> adapter;
};

ThreeSteps run_three_steps(TinyJob& job) {
    struct Recorder : TrainObserver {
        ThreeSteps steps;
        void on_step(const StepReport& report) override {
            steps.losses.push_back(report.loss);
            steps.norms.push_back(report.grad_norm);
        }
    } recorder;
    job.config.train.optim = "sgd";
    job.config.train.max_steps = 3;
    job.run({&recorder});
    for (const auto& tensor : read_peft_adapter(job.output() / "adapter").tensors)
        recorder.steps.adapter.insert(recorder.steps.adapter.end(), tensor.values.begin(),
                                      tensor.values.end());
    return recorder.steps;
}

void expect_same(const ThreeSteps& got, const ThreeSteps& want, const std::string& what) {
    ASSERT_EQ(want.losses.size(), 3u);
    ASSERT_EQ(got.losses.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_NEAR(got.losses[i], want.losses[i], kLoss * want.losses[i]) << what << i;
        EXPECT_NEAR(got.norms[i], want.norms[i], kGradient * want.norms[i]) << what << i;
    }
    ASSERT_EQ(got.adapter.size(), want.adapter.size());
    EXPECT_LE(testing::relative_error(got.adapter.data(), want.adapter), kGradient) << what;
}

// CASES 1, with ragged rows: one step over the same eleven of them, cut five ways. The gradients of single
// tensors are compared in models/decoder_invariance_test.cpp.
TEST_P(Behaviours, LossAndGradientsDoNotDependOnTheCutOfAStep) {
    struct Cut {
        int batch, accumulation;
        const char* merge;
    };
    std::optional<ThreeSteps> whole;
    for (const Cut& cut : {Cut{11, 1, "false"}, Cut{1, 11, "false"}, Cut{3, 4, "false"},
                           Cut{4, 3, "false"}, Cut{2, 6, "auto"}}) {
        TinyJob job;
        place(job);
        job.config.train.per_device_train_batch_size = cut.batch;
        job.config.train.gradient_accumulation_steps = cut.accumulation;
        job.config.train.merge_micro_batches = cut.merge;
        const ThreeSteps steps = run_three_steps(job);
        if (!whole) whole = steps;
        expect_same(steps, *whole, "batch " + std::to_string(cut.batch) + ", step ");
    }
}

// CASES 2: pad is eos in this tokenizer. A model trained on answers of three letters stops after them.
TEST_P(Behaviours, AModelTrainedOnShortAnswersStopsThoughPadIsEos) {
    TinyJob job(std::vector<int>(12, 6));
    place(job);
    job.config.train.method = "full";
    job.config.train.max_steps = 60;
    job.config.data.validation.clear();
    job.run();

    const ModelFiles files = ModelFiles::open(job.output() / "model");
    const auto device = make_device(GetParam());
    Arena arena(*device, std::int64_t{128} << 20);
    Meter meter;
    Stream stream(*device, arena, meter);
    Decoder model(*device, files, {});
    KvCache cache = model.make_cache(32);
    std::vector<std::int32_t> next{'x', 'q', 'j'};
    std::vector<std::int32_t> answer;
    while (answer.size() < 10) {
        std::vector<float> logits;
        model.decode(stream, cache, next, logits);
        next = {static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) -
                                          logits.begin())};
        answer.push_back(next[0]);
        if (next[0] == 258) break;
    }
    EXPECT_EQ(answer.back(), 258);  // <|im_end|>
    EXPECT_LE(answer.size(), 5u);
}

// A base in 4 bits, and an optimiser whose states of the head have 8.
void over_four_bits(JobConfig& config) {
    config.four_bit.load_in_4bit = true;
    config.four_bit.quant_type = "nf4";
    config.four_bit.use_double_quant = true;
    config.train.optim = "paged_adamw_8bit";
    config.lora.modules_to_save = {"lm_head"};
}

// CASES 3: a whole epoch is one step, of all rows end to end, of bins of 64 tokens, or of single rows.
TEST_P(Behaviours, PackedRowsTrainAsUnpackedOnes) {
    std::optional<ThreeSteps> apart;
    for (const int batch : {1, 11}) {
        for (const bool packing : {false, true}) {
            TinyJob job;
            place(job);
            job.config.train.packing = packing;
            job.config.train.per_device_train_batch_size = batch;
            job.config.train.gradient_accumulation_steps = 11 / batch;
            job.config.train.merge_micro_batches = "false";
            const ThreeSteps steps = run_three_steps(job);
            if (!apart) apart = steps;
            expect_same(steps, *apart, packing ? "packed, step " : "unpacked, step ");
        }
    }
}

// Rows that people wrote; an epoch is a step.
void expect_packed_as_unpacked(const std::string& device, const Json::Array& rows) {
    std::string lines;
    for (const Json& row : rows)
        lines += row.dump() + "\n";
    std::optional<ThreeSteps> apart;
    for (const bool packing : {false, true}) {
        TinyJob job;
        job.config.device = device;
        job.dir().write("train.jsonl", lines);
        job.config.train.max_length = 512;
        job.config.train.packing = packing;
        job.config.train.per_device_train_batch_size = packing ? 1 : 4;
        job.config.train.gradient_accumulation_steps = static_cast<int>(rows.size());
        const ThreeSteps steps = run_three_steps(job);
        if (!apart) apart = steps;
        expect_same(steps, *apart, packing ? "packed, step " : "unpacked, step ");
    }
}

TEST_P(Behaviours, PackedMessagesTrainAsUnpackedOnes) {
    GARAM_REQUIRE_DATA("spam/SMSSpamCollection");
    std::ifstream messages(testing::data_dir() / "spam/SMSSpamCollection");
    Json::Array rows;
    for (std::string line; rows.size() < 60 && std::getline(messages, line);) {
        const auto tab = line.find('\t');
        ASSERT_NE(tab, std::string::npos);
        Json row;
        row.set("prompt", line.substr(tab + 1));
        row.set("completion", line.substr(0, tab));
        rows.push_back(row);
    }
    expect_packed_as_unpacked(testing::device_key(GetParam()), rows);
}

// Some of these are longer than a bin and are cut.
TEST_P(Behaviours, PackedInstructionsTrainAsUnpackedOnes) {
    GARAM_REQUIRE_DATA("instruct/alpaca_en_demo.json");
    const Json all = Json::parse_file(testing::data_dir() / "instruct/alpaca_en_demo.json");
    const Json::Array& rows = all.array();
    ASSERT_GT(rows.size(), 40u);
    expect_packed_as_unpacked(testing::device_key(GetParam()), {rows.begin(), rows.begin() + 40});
}

// CASES 9: a loss that is not finite stops the run and names the step; what was written before is finite
// and whole, and no result is left. The first step makes weights whose loss is not finite.
TEST_P(Behaviours, ALossThatIsNotFiniteStopsWithTheStepNamedAndNothingOfItSaved) {
    struct Kind {
        const char* name;
        bool bf16;
        void (*set)(JobConfig& config);
    };
    const Kind kinds[] = {
        {"f32", false, [](JobConfig& c) { c.train.optim = "sgd"; }},
        {"bf16", true, [](JobConfig& c) { c.train.optim = "sgd"; }},
        {"a base in 4 bits", false, over_four_bits},
        {"a base in 4 bits, bf16", true, over_four_bits},
    };
    for (const Kind& kind : kinds) {
        SCOPED_TRACE(kind.name);
        TinyJob job;
        place(job);
        job.config.train.bf16 = kind.bf16;
        kind.set(job.config);
        job.config.train.max_grad_norm = 0;
        job.config.train.save_steps = 1;
        job.config.train.learning_rate = 1e30;
        job.config.data.validation.clear();
        std::string error;
        try {
            job.run();
        } catch (const Error& thrown) {
            error = thrown.what();
        }
        EXPECT_NE(error.find("step 2 is not finite"), std::string::npos) << error;
        EXPECT_NE(error.find("of the training data"), std::string::npos) << error;
        EXPECT_FALSE(std::filesystem::exists(job.output() / "adapter"));
        EXPECT_FALSE(std::filesystem::exists(job.output() / "checkpoint-2"));
        for (const auto& entry : std::filesystem::directory_iterator(job.output())) {
            if (!entry.path().filename().string().starts_with("checkpoint-")) continue;
            EXPECT_NO_THROW(Checkpoint::open(entry.path())) << entry.path();
            for (const auto& tensor : read_peft_adapter(entry.path()).tensors) {
                EXPECT_TRUE(std::all_of(tensor.values.begin(), tensor.values.end(),
                                        [](float value) { return std::isfinite(value); }))
                    << entry.path() << " " << tensor.name;
            }
        }
    }
}

// The engine of a job, in the step memory of its plan.
struct PlannedEngine {
    std::unique_ptr<PreparedJob> job;
    MemoryPlan plan;
    std::unique_ptr<Device> device;
    TrainingEngine engine;

    explicit PlannedEngine(TinyJob& tiny)
        : job(prepare(tiny.config)),
          plan(job->plan()),
          device(make_device(job->profile)),
          engine(*device, job->files, job->engine, plan.arena_bytes) {}
};

// CASES 17: evaluation needs nothing that training does not; where its rows are longer than those trained
// on, the plan knows it.
TEST_P(Behaviours, EvaluationStaysWithinThePlanOfTraining) {
    TinyJob job(std::vector<int>(12, 40));
    place(job);
    const std::int64_t with = prepare(job.config)->plan().total_bytes;
    {
        PlannedEngine planned(job);
        planned.engine.evaluate(planned.job->evaluation);
        EXPECT_LE(planned.engine.arena().peak(), planned.plan.arena_bytes);
        EXPECT_EQ(planned.device->memory().peak, planned.plan.total_bytes);
    }
    job.config.data.validation.clear();
    EXPECT_EQ(prepare(job.config)->plan().total_bytes, with);

    job.write_rows("long.jsonl", {60, 61, 62}, 3);
    job.config.data.validation = {(job.dir() / "long.jsonl").string()};
    job.config.train.per_device_train_batch_size = 1;
    job.config.train.eval_steps = 1;
    const std::int64_t longer = prepare(job.config)->plan().total_bytes;
    EXPECT_EQ(job.run().peak_memory_bytes, longer);
}

// CASES 18: no step of ragged rows needs more than was planned before the first, and the largest needs all.
TEST_P(Behaviours, TheLargestStepIsKnownBeforeTheFirst) {
    for (const std::string method : {"lora", "full"}) {
        TinyJob job({12, 57, 7, 25, 18, 57, 40, 22, 5, 16, 33});
        place(job);
        job.config.train.method = method;
        job.config.train.merge_micro_batches = "false";
        job.config.data.validation.clear();
        PlannedEngine planned(job);
        TrainingEngine& engine = planned.engine;
        const std::int64_t reserved = planned.device->memory().current;
        EXPECT_EQ(reserved, planned.plan.total_bytes);
        std::int64_t step = 0;
        for (; step < 3 * planned.job->loader->steps_per_epoch(); ++step) {
            engine.step(planned.job->loader->step(step), step, 1e-3);
            EXPECT_LE(engine.arena().peak(), planned.plan.arena_bytes) << step;
        }
        // The two longest rows, which the order above need not have brought together.
        TokenBatch largest;
        const SampleSelection& samples = planned.job->training;
        for (std::int64_t i = 0; i < samples.size(); ++i) {
            if (samples.tokens(i) == planned.job->training_bounds.longest)
                samples.append_to(largest, i);
        }
        ASSERT_EQ(largest.tokens(), planned.job->training_bounds.tokens);
        ASSERT_EQ(largest.num_targets(), planned.job->training_bounds.targets);
        engine.step({largest}, step, 1e-3);
        EXPECT_EQ(engine.arena().peak(), planned.plan.arena_bytes);
        EXPECT_EQ(planned.device->memory().peak, reserved);
    }
}

}  // namespace
}  // namespace garam
