// A job as far as it is known before anything is computed: files opened and checked, data read as
// tokens, the cut of the data into steps, what the engine is asked for. `garam train` and
// `garam plan` begin alike with this.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "garam/data/judged_rows.h"
#include "garam/data/loader.h"
#include "garam/data/samples/read_samples.h"
#include "garam/data/samples/sample_selection.h"
#include "garam/io/model_files.h"
#include "garam/text/tokenizer.h"
#include "garam/train/engine.h"
#include "garam/train/job_config.h"
#include "garam/train/memory_choice.h"
#include "garam/train/trainer_state.h"

namespace garam {

struct PreparedJob {
    JobConfig config;
    ModelFiles files;
    std::unique_ptr<Tokenizer> tokenizer;
    SampleSelection training;
    SampleSelection validation;      // empty where there is none
    std::unique_ptr<Loader> loader;  // over training
    std::vector<TokenBatch> evaluation;
    DeviceProfile profile;  // of the device that computes
    EngineOptions engine;
    BatchBounds training_bounds;
    EvaluationBounds evaluation_bounds;
    std::optional<JudgedSet> judged;        // with eval.metrics: rows to answer
    std::vector<std::int32_t> answer_ends;  // ids that end an answer
    std::optional<PeftAdapter> adapter;     // to go on with
    std::int64_t max_steps = 0;
    std::string base_name;  // for adapter_config.json; empty: unknown
    // The base's 4 bits, made while it is loaded or on the disk, of which an adapter tells.
    std::optional<BaseQuantization> base_quantization;
    RunIdentity identity;
    std::vector<std::string> notes;  // what a user should know before it starts

    std::int64_t merged_micro_batches = 1;  // see train/memory_choice.h

    // Settles what the run keeps and merges, and plans for it; with train.auto_find_batch_size it may cut
    // the batch. By the memory that is free, or, where that decides about bits, as an earlier part of the
    // run did.
    MemoryPlan plan(const TrainerState* earlier = nullptr);

    // Tokens of the longest sample that this run's memory would hold (train/memory_choice.h).
    std::int64_t longest_sample() const;

  private:
    MemoryQuestion question() const;
    // The rows of a pass, and how many passes make a step.
    void cut_batch(std::int64_t batch_size, std::int64_t accumulation);
};

// How rows become tokens under these keys, for training and evaluation alike. Throws Error when there is no
// such chat template.
EncodingSettings encoding_settings(const JobConfig& config, std::int64_t vocab_size);

// How samples are cut into batches under these keys.
LoaderOptions loader_options(const JobConfig& config);

// Throws Error for whatever is wrong with config, model, adapter or data. Tells `progress` how far the rows
// are read.
std::unique_ptr<PreparedJob> prepare(const JobConfig& config, const ReadingProgress& progress = {});

}  // namespace garam
