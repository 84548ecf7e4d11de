#include "garam/train/trainer.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <utility>

#include "garam/core/error.h"
#include "garam/core/parallel.h"
#include "garam/io/peft_adapter.h"
#include "garam/io/safetensors.h"
#include "garam/train/run_folder.h"
#include "testing/cards.h"
#include "train/tiny_job.h"

namespace garam {
namespace {

using testing::read_file;
using testing::timeless_metrics;
using testing::TinyJob;

std::string adapter_bytes(const std::filesystem::path& folder) {
    return read_file(folder / "adapter_model.safetensors");
}

struct Recorder : TrainObserver {
    std::vector<StepReport> steps;
    std::vector<EvalReport> evaluations;
    void on_step(const StepReport& report) override { steps.push_back(report); }
    void on_evaluation(const EvalReport& report) override { evaluations.push_back(report); }
};

TEST(Trainer, LearnsAndLeavesARunFolder) {
    TinyJob job;
    job.config.train.max_steps = 30;
    Recorder recorder;
    const EndReport end = job.run({&recorder});
    EXPECT_EQ(end.reason, "finished");
    ASSERT_EQ(recorder.steps.size(), 30u);
    EXPECT_LT(recorder.steps.back().loss, 0.7 * recorder.steps.front().loss);
    for (const char* name : {"adapter/adapter_config.json", "adapter/adapter_model.safetensors",
                             "adapter/tokenizer.json", "best/adapter_model.safetensors",
                             "checkpoint-30/optimizer.safetensors", "metrics.jsonl", "config.yaml"})
        EXPECT_TRUE(std::filesystem::exists(job.output() / name)) << name;
    const PeftAdapter adapter = read_peft_adapter(job.output() / "adapter");
    EXPECT_EQ(adapter.settings.r, 4);
    EXPECT_EQ(adapter.tensors.size(), 28u);
}

TEST(Trainer, TwoRunsAreBitEqual) {
    TinyJob first;
    TinyJob second;
    first.run();
    second.run();
    EXPECT_EQ(adapter_bytes(first.output() / "adapter"),
              adapter_bytes(second.output() / "adapter"));
    EXPECT_EQ(timeless_metrics(first.output()), timeless_metrics(second.output()));
}

TEST(Trainer, GradientCheckpointingIsBitEqual) {
    TinyJob plain;
    TinyJob recomputing;
    recomputing.config.train.gradient_checkpointing = "true";
    plain.run();
    recomputing.run();
    EXPECT_EQ(adapter_bytes(plain.output() / "adapter"),
              adapter_bytes(recomputing.output() / "adapter"));
}

// What resumes: each optimiser, method and kind of adapter.
struct ResumedKind {
    const char* name;
    void (*set)(JobConfig& config);
};
const ResumedKind kResumedKinds[] = {
    {"ranks, LoRA+, trained tokens",
     [](JobConfig& c) {
         c.loraplus_lr_ratio = 4;
         c.lora.rank_pattern = {{"q_proj", 2}};
         c.lora.trainable_token_indices = {256, 5};
     }},
    {"embeddings, saved modules",
     [](JobConfig& c) {
         c.train.optim = "sgd";
         c.lora.target_modules = {"q_proj", "embed_tokens"};
         c.lora.modules_to_save = {"lm_head", "input_layernorm"};
     }},
    {"DoRA",
     [](JobConfig& c) {
         c.lora.use_dora = true;
         c.lora.lora_dropout = 0.1;
     }},
    {"rsLoRA of the head, orthogonal",
     [](JobConfig& c) {
         c.train.optim = "sgd";
         c.lora.use_rslora = true;
         c.init_lora_weights = "orthogonal";
         c.lora.target_modules = {"v_proj", "lm_head"};
     }},
    {"PiSSA",
     [](JobConfig& c) {
         c.init_lora_weights = "pissa";
         c.lora.rank_pattern = {{"q_proj", 2}};
         c.lora.bias = "all";
         c.lora.trainable_token_indices = {256, 5};
     }},
    {"all weights", [](JobConfig& c) { c.train.method = "full"; }},
    {"a base in 4 bits",
     [](JobConfig& c) {
         c.four_bit.load_in_4bit = true;
         c.four_bit.quant_type = "nf4";
         c.four_bit.use_double_quant = true;
         c.lora.use_dora = true;
         c.lora.trainable_token_indices = {256, 5};
     }},
    {"all weights, 8 bits",
     [](JobConfig& c) {
         c.train.method = "full";
         c.train.optim = "adamw_8bit";
     }},
    {"saved modules, paged 8 bits",
     [](JobConfig& c) {
         c.train.optim = "paged_adamw_8bit";
         c.lora.modules_to_save = {"lm_head"};
     }},
    {"paged 32 bits", [](JobConfig& c) { c.train.optim = "paged_adamw_32bit"; }},
};

// PiSSA begins where the base stands, learns, and leaves an adapter that says the same of the base on the disk.
TEST(Trainer, PissaBeginsAsTheBaseAndLeavesAnOrdinaryAdapter) {
    for (const bool bf16 : {false, true}) {
        for (const char* init : {"pissa", "pissa_niter_2"}) {
            SCOPED_TRACE(std::string(init) + (bf16 ? ", bf16" : ", f32"));
            const double tolerance = bf16 ? 2e-2 : 1e-5;
            const auto losses_of = [&](TinyJob& job) {
                job.config.train.bf16 = bf16;
                job.config.lora.lora_dropout = 0;
                job.config.train.eval_on_start = true;
                Recorder recorder;
                job.run({&recorder});
                std::vector<double> losses;
                for (const EvalReport& report : recorder.evaluations)
                    losses.push_back(report.eval_loss);
                return losses;
            };
            TinyJob plain;
            plain.config.train.max_steps = 1;
            const std::vector<double> base = losses_of(plain);
            TinyJob job;
            job.config.init_lora_weights = init;
            job.config.lora.use_rslora = true;
            job.config.lora.rank_pattern = {{"q_proj", 2}};
            job.config.train.learning_rate = 1e-3;
            job.config.train.max_steps = 20;
            job.config.train.eval_steps = 20;
            const std::vector<double> losses = losses_of(job);
            ASSERT_EQ(losses.size(), 2u);
            EXPECT_NEAR(losses[0], base[0], tolerance);
            EXPECT_LT(losses[1], losses[0] - 0.1);

            const PeftAdapter adapter = read_peft_adapter(job.output() / "adapter");
            EXPECT_EQ(adapter.settings.r, 8);
            TinyJob after;
            after.config.model = job.config.model;
            after.config.adapter = (job.output() / "adapter").string();
            after.config.train.max_steps = 1;
            EXPECT_NEAR(losses_of(after)[0], losses[1], tolerance);
        }
    }
}

// The base of adapted linears is no longer that of the mapped file, and the plan knows.
TEST(Trainer, PissaTakesMemoryOfItsOwnForTheBase) {
    const auto plan_of = [](const char* init) {
        TinyJob job;
        job.config.init_lora_weights = init;
        job.config.lora.target_modules = {"down_proj"};
        const auto prepared = prepare(job.config);
        return plan_memory(prepared->profile, prepared->files, prepared->engine,
                           {.tokens = 8, .longest = 8, .targets = 8, .samples = 1}, 1, {});
    };
    const MemoryPlan plain = plan_of("true");
    const MemoryPlan pissa = plan_of("pissa");
    const std::int64_t weights = 2 * 24 * 40 * 4;  // of both layers
    const auto held = [](const MemoryPlan& plan, Purpose purpose) {
        return plan.by_purpose[static_cast<std::size_t>(purpose)];
    };
    EXPECT_EQ(pissa.mapped_bytes, plain.mapped_bytes - weights);
    EXPECT_EQ(held(pissa, Purpose::weights), held(plain, Purpose::weights) + weights);
    EXPECT_EQ(held(pissa, Purpose::adapter),
              held(plain, Purpose::adapter) + 2 * (align_up(4 * 40 * 4) + align_up(24 * 4 * 4)));
}

TEST(Trainer, PissaIsRefusedWhereItCannotBegin) {
    const auto refusal = [](void (*set)(TinyJob&)) {
        TinyJob job;
        job.config.init_lora_weights = "pissa";
        set(job);
        try {
            job.run();
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    EXPECT_NE(refusal([](TinyJob& job) { job.config.lora.use_dora = true; }).find("use_dora"),
              std::string::npos);
    EXPECT_NE(refusal([](TinyJob& job) {
                  job.config.lora.target_modules = {"q_proj", "embed_tokens"};
              }).find("embed_tokens"),
              std::string::npos);
    EXPECT_NE(refusal([](TinyJob& job) {
                  job.config.lora.rank_pattern = {{"k_proj", 17}};
              }).find("rank 17 of model.layers.0.self_attn.k_proj"),
              std::string::npos);
    EXPECT_NE(refusal([](TinyJob& job) { job.config.adapter = "somewhere"; }).find("contradict"),
              std::string::npos);
}

// N steps, kill -9, resume, N steps = 2N steps, bit for bit; also when the kill falls between a checkpoint
// and steps after it.
TEST(Trainer, KilledAndResumedEqualsUninterrupted) {
    // A forked child has none of its parent's worker threads, so all of this runs on one.
    const int threads = num_threads();
    set_num_threads(1);
    for (const ResumedKind& kind : kResumedKinds) {
        SCOPED_TRACE(kind.name);
        const auto configure = [&](TinyJob& job) {
            kind.set(job.config);
            job.config.train.save_steps = 3;
            job.config.train.eval_steps = 2;
            job.config.train.logging_steps = 2;
            job.config.train.lr_scheduler_type = "cosine";
            job.config.train.warmup_steps = 2;
        };
        TinyJob whole;
        configure(whole);
        whole.run();

        TinyJob killed;
        configure(killed);
        struct KillAtFive : TrainObserver {
            void on_progress(const ProgressReport& report) override {
                if (report.step == 5) kill(getpid(), SIGKILL);
            }
        };
        const pid_t child = fork();
        if (child == 0) {
            KillAtFive killer;
            try {
                killed.run({&killer});
            } catch (const std::exception& e) {
                std::fprintf(stderr, "%s\n", e.what());
            }
            _exit(1);
        }
        int status = 0;
        waitpid(child, &status, 0);
        ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        killed.config.train.resume_from_checkpoint = "true";
        killed.run();
        const std::string name = whole.config.train.method == "full"
                                     ? "model/model.safetensors"
                                     : "adapter/adapter_model.safetensors";
        EXPECT_EQ(read_file(killed.output() / name), read_file(whole.output() / name));
        EXPECT_EQ(timeless_metrics(killed.output()), timeless_metrics(whole.output()));
        EXPECT_EQ(read_file(killed.output() / "checkpoint-8" / "optimizer.safetensors"),
                  read_file(whole.output() / "checkpoint-8" / "optimizer.safetensors"));
    }
    set_num_threads(threads);
}

// SIGINT finishes the step, saves, and the run goes on from there.
TEST(Trainer, InterruptSavesAndResumes) {
    TinyJob whole;
    whole.run();
    TinyJob stopped;
    struct InterruptAtFour : TrainObserver {
        void on_progress(const ProgressReport& report) override {
            if (report.step == 4) raise(SIGINT);
        }
    } interrupter;
    const EndReport end = stopped.run({&interrupter});
    EXPECT_EQ(end.reason, "interrupted");
    EXPECT_EQ(end.signal, SIGINT);
    EXPECT_EQ(end.step, 4);
    EXPECT_TRUE(std::filesystem::exists(stopped.output() / "checkpoint-4"));
    EXPECT_FALSE(std::filesystem::exists(stopped.output() / "adapter"));
    stopped.config.train.resume_from_checkpoint = (stopped.output() / "checkpoint-4").string();
    stopped.run();
    EXPECT_EQ(adapter_bytes(stopped.output() / "adapter"),
              adapter_bytes(whole.output() / "adapter"));
}

class TrainerDevices : public ::testing::TestWithParam<DeviceProfile> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TrainerDevices);
INSTANTIATE_TEST_SUITE_P(Cuda, TrainerDevices, ::testing::ValuesIn(testing::cards()),
                         [](const auto& test) { return testing::card_name(test.param); });

// On a card, too: two runs are bit-equal, and so are N steps, a stop, and N more.
TEST_P(TrainerDevices, StoppedAndResumedEqualsUninterrupted) {
    for (const ResumedKind& kind : kResumedKinds) {
        for (const bool bf16 : {false, true}) {
            SCOPED_TRACE(std::string(kind.name) + (bf16 ? ", bf16" : ", f32"));
            const auto configure = [&](TinyJob& job) {
                kind.set(job.config);
                job.config.device = "cuda:" + std::to_string(GetParam().ordinal);
                job.config.train.bf16 = bf16;
                job.config.train.eval_steps = 2;
                job.config.train.lr_scheduler_type = "cosine";
                job.config.train.warmup_steps = 2;
            };
            TinyJob whole;
            configure(whole);
            whole.run();
            const std::string name = whole.config.train.method == "full"
                                         ? "model/model.safetensors"
                                         : "adapter/adapter_model.safetensors";
            TinyJob second;
            configure(second);
            second.run();
            EXPECT_EQ(read_file(second.output() / name), read_file(whole.output() / name));
            EXPECT_EQ(timeless_metrics(second.output()), timeless_metrics(whole.output()));

            TinyJob stopped;
            configure(stopped);
            struct InterruptAtFour : TrainObserver {
                void on_progress(const ProgressReport& report) override {
                    if (report.step == 4) raise(SIGINT);
                }
            } interrupter;
            EXPECT_EQ(stopped.run({&interrupter}).step, 4);
            stopped.config.train.resume_from_checkpoint = "true";
            stopped.run();
            EXPECT_EQ(read_file(stopped.output() / name), read_file(whole.output() / name));
            EXPECT_EQ(read_file(stopped.output() / "checkpoint-8" / "optimizer.safetensors"),
                      read_file(whole.output() / "checkpoint-8" / "optimizer.safetensors"));
        }
    }
}

std::string error_of(TinyJob& job) {
    try {
        job.run();
    } catch (const Error& e) {
        return e.what();
    }
    return "";
}

TEST(Trainer, ResumeIsRefusedForAnotherRun) {
    TinyJob job;
    job.config.train.max_steps = 2;
    job.run();
    job.config.train.resume_from_checkpoint = "true";
    job.config.train.seed = 43;
    EXPECT_NE(error_of(job).find("seed"), std::string::npos);
    job.config.train.seed = 42;
    job.config.train.max_steps = 3;
    EXPECT_NE(error_of(job).find("train.max_steps is 3, the checkpoint has 2"), std::string::npos)
        << error_of(job);
    job.config.train.max_steps = 2;
    testing::TinyModel other;
    other.seed = 2;
    write_tiny_model(job.dir() / "other", other);
    job.config.model = (job.dir() / "other").string();
    EXPECT_NE(error_of(job).find("model is another one"), std::string::npos) << error_of(job);
    job.config.model = (job.dir() / "model").string();
    job.write_rows("train.jsonl", {12, 30, 7}, 9);
    EXPECT_NE(error_of(job).find("data"), std::string::npos);
}

TEST(Trainer, ResultsOfAnEarlierRunAreNotLost) {
    TinyJob job;
    job.config.train.max_steps = 1;
    job.run();
    const std::string before = adapter_bytes(job.output() / "adapter");
    job.config.train.seed = 7;
    EXPECT_NE(error_of(job).find("earlier run"), std::string::npos);
    EXPECT_EQ(adapter_bytes(job.output() / "adapter"), before);
    job.config.train.overwrite_output_dir = true;
    // A new run that cannot begin takes nothing with it.
    job.config.lora.target_modules = {"no_such_module"};
    EXPECT_NE(error_of(job).find("no_such_module"), std::string::npos);
    EXPECT_EQ(adapter_bytes(job.output() / "adapter"), before);
    job.config.lora.target_modules = {"all-linear"};
    // Nor what it is to read, under whatever name.
    job.config.adapter = (job.output() / "." / "adapter").string();
    EXPECT_NE(error_of(job).find("would remove"), std::string::npos);
    EXPECT_EQ(adapter_bytes(job.output() / "adapter"), before);
    job.config.adapter = "";
    const std::string model = std::exchange(job.config.model, "tiny/model");
    const std::filesystem::path repository = job.output() / "best/hub/models--tiny--model";
    testing::write_tiny_model(repository / "snapshots/0123abcd");
    std::filesystem::create_directory(repository / "refs");
    std::ofstream(repository / "refs/main") << "0123abcd";
    setenv("HF_HUB_CACHE", (job.output() / "best/hub").c_str(), 1);
    EXPECT_NE(error_of(job).find("would remove"), std::string::npos);
    unsetenv("HF_HUB_CACHE");
    job.config.model = model;
    EXPECT_EQ(error_of(job), "");
    EXPECT_NE(adapter_bytes(job.output() / "adapter"), before);
}

TEST(Trainer, SamplesBeyondTheModelsContextAreWarnedOf) {
    TinyJob job;
    job.config.data.cache = false;  // else the second time tells what is kept
    job.config.data.cache_dir = "";
    testing::TinyModel model;
    model.max_positions = 45;  // the longest row has 40 bytes and an end
    write_tiny_model(job.dir() / "model", model);
    EXPECT_EQ(prepare(job.config)->notes.size(), 2u);  // the two files
    model.max_positions = 40;
    write_tiny_model(job.dir() / "model", model);
    const auto prepared = prepare(job.config);
    ASSERT_EQ(prepared->notes.size(), 3u);
    EXPECT_NE(prepared->notes[2].find("longest sample has 41 tokens"), std::string::npos)
        << prepared->notes[2];
}

TEST(Trainer, AFolderIsOneRunsAtATime) {
    TinyJob job;
    job.config.train.max_steps = 1;
    {
        const RunFolder other(job.output());
        EXPECT_NE(error_of(job).find("another garam"), std::string::npos);
    }
    EXPECT_EQ(error_of(job), "");
    job.config.train.resume_from_checkpoint = "true";
    {
        const RunFolder other(job.output());
        EXPECT_NE(error_of(job).find("another garam"), std::string::npos);
    }
    EXPECT_EQ(error_of(job), "");
}

TEST(Trainer, ARunThatCannotBeginLeavesNoFolder) {
    TinyJob job;
    job.config.lora.target_modules = {"no_such_module"};
    EXPECT_NE(error_of(job), "");
    EXPECT_FALSE(std::filesystem::exists(job.output()));
}

// CASES 13: `best` is a real adapter folder, that of the lowest evaluation loss, and what
// load_best_model_at_end leaves as the result.
TEST(Trainer, BestIsTheAdapterOfTheBestEvaluation) {
    for (const bool in_four_bits : {false, true}) {
        SCOPED_TRACE(in_four_bits ? "a base in 4 bits" : "a base in full");
        TinyJob job;
        // Letters that training makes ever less likely: the loss soon rises.
        job.write_rows("validation.jsonl", {20, 11, 35}, 2, 'A');
        job.config.train.max_steps = 12;
        job.config.train.learning_rate = 0.1;
        job.config.train.eval_steps = 1;
        job.config.train.save_steps = 1;
        job.config.train.load_best_model_at_end = true;
        if (in_four_bits) {
            job.config.four_bit.load_in_4bit = true;
            job.config.four_bit.quant_type = "nf4";
            job.config.train.optim = "paged_adamw_8bit";
            job.config.lora.modules_to_save = {"lm_head"};
        }
        Recorder recorder;
        job.run({&recorder});
        std::int64_t best = 0;
        double lowest = std::numeric_limits<double>::infinity();
        for (const EvalReport& report : recorder.evaluations) {
            if (report.eval_loss < lowest) best = report.step;
            lowest = std::min(lowest, report.eval_loss);
        }
        ASSERT_LT(best, 12) << "the run kept improving; this test needs one that does not";
        const std::string want =
            adapter_bytes(job.output() / ("checkpoint-" + std::to_string(best)));
        EXPECT_EQ(adapter_bytes(job.output() / "best"), want);
        EXPECT_EQ(adapter_bytes(job.output() / "adapter"), want);
        const PeftAdapter adapter = read_peft_adapter(job.output() / "best");
        EXPECT_EQ(adapter.tensors.size(), in_four_bits ? 29u : 28u);
        EXPECT_EQ(adapter.base_quantization.has_value(), in_four_bits);

        // Who loads it finds that loss again.
        TinyJob after;
        after.config.model = job.config.model;
        after.config.four_bit = job.config.four_bit;
        after.config.data.validation = job.config.data.validation;
        after.config.adapter = (job.output() / "best").string();
        after.config.train.max_steps = 1;
        after.config.train.eval_on_start = true;
        Recorder again;
        after.run({&again});
        EXPECT_EQ(again.evaluations.front().eval_loss, lowest);
    }
}

TEST(Trainer, EarlyStopping) {
    TinyJob job;
    // Letters that training makes ever less likely: the loss soon rises.
    job.write_rows("validation.jsonl", {20, 11, 35}, 2, 'A');
    job.config.train.max_steps = 100;
    job.config.train.eval_steps = 1;
    job.config.train.save_steps = 1;
    job.config.train.load_best_model_at_end = true;
    job.config.train.early_stopping_patience = 3;
    job.config.train.save_total_limit = 2;
    Recorder recorder;
    const EndReport end = job.run({&recorder});
    EXPECT_EQ(end.reason, "stopped early");
    EXPECT_LT(end.step, 100);
    int checkpoints = 0;
    for (const auto& entry : std::filesystem::directory_iterator(job.output()))
        checkpoints += entry.path().filename().string().starts_with("checkpoint-");
    EXPECT_EQ(checkpoints, 2);
}

// Going on with an adapter starts where it stood.
TEST(Trainer, ContinuesAnAdapter) {
    TinyJob first;
    first.run();
    TinyJob second;
    second.config.model = first.config.model;
    second.config.adapter = (first.output() / "adapter").string();
    second.config.train.max_steps = 1;
    second.config.train.learning_rate = 0;
    second.run();
    EXPECT_EQ(adapter_bytes(second.output() / "adapter"),
              adapter_bytes(first.output() / "adapter"));
}

}  // namespace
}  // namespace garam
