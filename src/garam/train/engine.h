// One model in training on one device: weights, trained parameters, optimiser states and the step's
// memory, all allocated when the engine is made, and the step itself.
//
// The same class runs on a dry device, which is how its memory is known before it is spent:
// plan_memory() below is a run of this engine that computes nothing.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "garam/core/token_batch.h"
#include "garam/models/decoder.h"
#include "garam/optim/optimizer.h"
#include "garam/runtime/device.h"
#include "garam/train/micro_steps.h"
#include "garam/train/step_ring.h"
#include "garam/train/step_time.h"

namespace garam {

struct EngineOptions {
    Decoder::Options model;
    OptimizerOptions optimizer;
    double max_grad_norm = 1;                  // 0: no clipping
    Recompute recompute = Recompute::nothing;  // gradient_checkpointing
    std::int64_t tile = 0;                     // PassContext::tile, where blocks are recomputed
    std::uint64_t seed = 42;                   // of dropout and noise
    double neftune_noise_alpha = 0;            // on embeddings; 0: none
};

// Sizes that no micro-batch of a run exceeds.
struct BatchBounds {
    std::int64_t tokens = 0;
    std::int64_t longest = 0;  // tokens of one sample
    std::int64_t targets = 0;
    std::int64_t samples = 0;
};

// The same of evaluations, and what their answers take (train/training_model.h).
struct EvaluationBounds : BatchBounds {
    std::int64_t room = 0;      // tokens of a question with its answer; 0: none is generated
    std::int64_t question = 0;  // of these, tokens of the longest question
    std::int64_t scored = 0;    // tokens of an answer that is scored at once
};

// What an engine reserves for its steps.
struct StepMemory {
    StepMemory(std::int64_t arena = 0, std::int64_t offload = 0, std::int64_t batch = 0)
        : arena_bytes(arena), offload_bytes(offload), batch_bytes(batch) {}
    std::int64_t arena_bytes;
    // Of the card, beside all that garam allocates: for recorded work (train/micro_steps.h).
    std::int64_t recorded_bytes = std::numeric_limits<std::int64_t>::max();
    // Pinned host memory: for inputs of blocks (Recompute::offload), and for each batch on its way.
    std::int64_t offload_bytes;
    std::int64_t batch_bytes;
};

struct MemoryPlan : StepMemory {
    std::int64_t total_bytes = 0;  // all that garam allocates on the device, the arena included
    std::array<std::int64_t, kPurposes> by_purpose{};  // adds up to total_bytes
    std::int64_t pinned_bytes = 0;                     // pinned host memory, beside total_bytes
    std::int64_t mapped_bytes = 0;  // weights used in place in a mapped file (page cache)
    std::int64_t trainable_elements = 0;
    std::int64_t total_elements = 0;
    std::int64_t training_bytes = 0;  // of the arena, without evaluation
    Cost step_cost;                   // of one optimiser step of the largest micro-batches
    StepTime step_time;               // of the same
    // While the model is loaded, before the step's memory is taken.
    std::int64_t load_peak_bytes = 0;
    // Projections whose base is quantised, and how many of them stay decoded.
    std::int64_t streamable_projections = 0;
    std::int64_t resident_projections = 0;

    std::int64_t peak_bytes() const { return std::max(total_bytes, load_peak_bytes); }
};

class TrainingEngine {
  public:
    // Throws Error as Decoder and Optimizer do, and when memory does not suffice.
    TrainingEngine(Device& device, const ModelFiles& files, const EngineOptions& options,
                   const StepMemory& memory);
    ~TrainingEngine();

    struct StepResult {
        double loss_sum = 0;  // over the targets of all micro-batches
        std::int64_t targets = 0;
        double grad_norm = 0;  // of the mean loss, before clipping
        double loss() const { return targets == 0 ? 0 : loss_sum / static_cast<double>(targets); }
    };
    // One optimiser step over the micro-batches; `steps_done` counts optimiser steps before it. The
    // loss is the sum over target tokens of all micro-batches divided by their number, whatever the
    // cut. On a card the step is enqueued, and what it gave is read later: by results(), or here once
    // StepRing::kSteps wait. Whoever reads it throws Error when loss or gradient is not finite, naming
    // step, layer and sample; parameters are then as before that step, since the device applies
    // neither it nor the ones enqueued after it.
    void enqueue_step(std::vector<TokenBatch> micro_batches, std::int64_t steps_done,
                      double learning_rate);
    // What steps gave, in their order, each once: of those that were read by now, or, waiting, of all.
    std::vector<StepResult> results(bool wait);
    // Both, for one step.
    StepResult step(const std::vector<TokenBatch>& micro_batches, std::int64_t steps_done,
                    double learning_rate);

    struct EvalResult {
        double loss_sum = 0;
        std::int64_t targets = 0;
        // Mean over all target tokens; 0 when there is none.
        double loss() const { return targets == 0 ? 0 : loss_sum / static_cast<double>(targets); }
    };
    EvalResult evaluate(const std::vector<TokenBatch>& batches);

    // What the steps so far needed.
    StepMemory needed() const;
    Decoder& model() { return model_; }
    Optimizer& optimizer() { return optimizer_; }
    Arena& arena() { return arena_; }
    Meter& meter() { return meter_; }
    Stream& stream() { return stream_; }
    MicroSteps& micro_steps() { return micro_steps_; }
    const Device& device() const { return device_; }

  private:
    static std::vector<Parameter*> pointers(std::vector<Parameter>& parameters);
    void read_oldest();
    [[noreturn]] void report_non_finite(const StepRing::Step& step, double loss);
    TrainingPass pass(std::int64_t steps_done);

    Device& device_;
    EngineOptions options_;
    Decoder model_;
    Optimizer optimizer_;
    Arena arena_;
    Meter meter_;
    Stream stream_;
    Tensor scalars_;  // f32 [2], on the arena's low end for good: the two that follow
    Tensor loss_sum_;
    Tensor norm_squared_;
    Tensor scale_;  // f32 [1]: what the optimiser multiplies gradients by (ops/gradient_scale.h)
    StepRing ring_;
    std::vector<StepResult> results_;
    std::optional<BlockOffload> offload_;  // with Recompute::offload
    MicroSteps micro_steps_;
};

// Runs the engine on a dry device of that profile over a step of `micro_batches` of the largest
// micro-batches of training and, where `evaluation` has tokens, over the largest evaluation batch, and
// where it has room, over the longest question and answer. Reads no weights. Throws Error when a sequence of
// so much room would turn shorter ones otherwise (Decoder::cache_capacity).
MemoryPlan plan_memory(const DeviceProfile& profile, const ModelFiles& files,
                       const EngineOptions& options, const BatchBounds& training,
                       std::int64_t micro_batches, const EvaluationBounds& evaluation);

}  // namespace garam
