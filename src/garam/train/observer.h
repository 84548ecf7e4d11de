// What a training run tells about itself while it runs. The trainer calls every observer in the
// order in which they were given, on its own thread; observers only look. An observer that throws
// Error (a full disk) ends the run.
//
// Order of the calls: on_reading while rows are tokenised; on_start; then for each optimiser step
// on_progress, and where due on_step, on_evaluation, on_checkpoint in this order; on_message at any
// time; on_end once, also after an interrupt or an early stop, but not when an error ends the run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "garam/serve/classification.h"

namespace garam {

struct ReadingState;  // data/read_samples.h

struct StartReport {
    std::string model;            // as the user named it
    std::string output_dir;       // where everything lies
    std::int64_t first_step = 0;  // steps done before (> 0 after a resume)
    std::int64_t max_steps = 0;
    double num_epochs = 0;
    std::int64_t num_samples = 0;
    std::int64_t samples_per_step = 0;  // batch size per device * accumulation
    std::int64_t trained_parameters = 0;
    std::int64_t total_parameters = 0;
    std::string memory;  // the table of the plan (train/memory_table.h)
};

// After every optimiser step, which a card may not have finished yet. Cheap: no value that the host would
// have to wait for.
struct ProgressReport {
    std::int64_t step = 0;  // steps done
    std::int64_t max_steps = 0;
    double seconds = 0;  // since on_start
};

// After every `logging_steps` optimiser steps (and the last one): what the steps since the last
// report did.
struct StepReport {
    std::int64_t step = 0;  // steps done
    std::int64_t max_steps = 0;
    double epoch = 0;
    double loss = 0;           // mean of these steps' losses, each a mean over its target tokens
    double grad_norm = 0;      // of the last of them, before clipping
    double learning_rate = 0;  // that the last of them used
    std::int64_t num_target_tokens = 0;  // of these steps
    std::int64_t num_tokens = 0;         // of these steps, without padding
    double tokens_per_second = 0;        // num_tokens / time of these steps, evaluation apart
    std::int64_t peak_memory_bytes = 0;  // of the device so far
    double seconds = 0;                  // since on_start
};

struct EvalReport {
    std::int64_t step = 0;
    double epoch = 0;
    double eval_loss = 0;  // mean over all target tokens of the validation data
    std::int64_t num_target_tokens = 0;
    std::vector<std::pair<std::string, double>> metrics;  // of eval.metrics, by reported name
    std::optional<Confusion> confusion;                   // where it is one of them
    double seconds = 0;                                   // that the evaluation took
    bool is_best = false;
};

struct EndReport {
    std::string reason;  // "finished", "interrupted", "stopped early"
    int signal = 0;      // that interrupted it: SIGINT or SIGTERM
    std::int64_t step = 0;
    std::int64_t max_steps = 0;
    double epoch = 0;
    double train_loss = 0;  // mean over the target tokens of this process's steps
    std::int64_t num_target_tokens = 0;
    std::int64_t num_tokens = 0;
    double tokens_per_second = 0;
    double seconds = 0;
    std::int64_t peak_memory_bytes = 0;
    std::vector<std::pair<std::string, double>> seconds_by_phase;       // largest first
    std::vector<std::pair<std::string, std::int64_t>> peak_by_purpose;  // bytes at the peak
    std::vector<std::pair<std::string, std::string>> outputs;  // ("adapter", its path), …
};

class TrainObserver {
  public:
    virtual ~TrainObserver() = default;
    virtual void on_reading(const ReadingState&) {}
    virtual void on_start(const StartReport&) {}
    virtual void on_progress(const ProgressReport&) {}
    virtual void on_step(const StepReport&) {}
    virtual void on_evaluation(const EvalReport&) {}
    virtual void on_checkpoint(const std::filesystem::path&) {}
    virtual void on_message(std::string_view) {}
    virtual void on_end(const EndReport&) {}
};

}  // namespace garam
