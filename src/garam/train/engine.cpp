#include "garam/train/engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "garam/core/error.h"
#include "garam/ops/elementwise.h"
#include "garam/ops/gradient_scale.h"
#include "garam/runtime/transfer.h"
#include "garam/serve/served_model.h"

namespace garam {
namespace {

// A micro-batch of exactly these bounds: one longest sample, the rest cut into others no longer.
TokenBatch batch_of(const BatchBounds& bounds) {
    TokenBatch batch;
    for (std::int64_t left = bounds.tokens; left > 0;) {
        // One token stays for each sample to come.
        const std::int64_t later =
            std::clamp<std::int64_t>(bounds.samples - batch.samples() - 1, 0, left - 1);
        const std::int64_t length =
            std::min(left - later, std::max<std::int64_t>(bounds.longest, 1));
        const std::vector<std::int32_t> ids(static_cast<std::size_t>(length), 0);
        batch.append(ids, ids, batch.samples());
        left -= length;
    }
    std::int64_t targets = 0;
    for (std::int32_t& target : batch.targets) {
        target = targets < bounds.targets ? 0 : kIgnore;
        ++targets;
    }
    return batch;
}

bool is_finite(Stream& stream, const Tensor& device) {
    const HostTensor host(stream, device);
    const Tensor& tensor = host.tensor();
    const float* const values = tensor.data<float>();
    return std::all_of(values, values + tensor.elements(),
                       [](float v) { return std::isfinite(v); });
}

// What generating and scoring an answer at the end of a full cache takes. Returns the pinned memory of the
// cache, which is gone with it.
std::int64_t answer_longest(TrainingEngine& engine, const EvaluationBounds& bounds) {
    Decoder& model = engine.model();
    Stream& stream = engine.stream();
    if (model.cache_capacity(1, bounds.room) != bounds.room)
        throw Error("eval.metrics: questions and answers of up to " + std::to_string(bounds.room) +
                    " tokens pass the length (" +
                    std::to_string(model.cache_capacity(1, bounds.room)) +
                    ") at which this model turns its positions otherwise, which is not offered in "
                    "training: lower train.max_length or eval.max_new_tokens");
    const Arena::Mark start = stream.arena().mark();
    KvCache cache = model.make_cache(stream, bounds.room);
    std::vector<float> logits;
    const auto feed = [&](std::int64_t end, std::int64_t tokens, std::int64_t rows) {
        cache.length = end - tokens;
        model.decode(stream, cache, std::vector<std::int32_t>(static_cast<std::size_t>(tokens)),
                     logits, rows);
    };
    feed(bounds.question, std::min(kPrefillChunk, bounds.question), 1);
    feed(bounds.room, 1, 1);
    if (bounds.scored > 0) feed(bounds.room, bounds.scored, bounds.scored);
    stream.arena().rewind(start);
    return cache.row.bytes();
}

}  // namespace

std::vector<Parameter*> TrainingEngine::pointers(std::vector<Parameter>& parameters) {
    std::vector<Parameter*> result;
    for (Parameter& parameter : parameters)
        result.push_back(&parameter);
    // As they lie in memory: the optimiser then updates them in a pass or two.
    std::stable_sort(result.begin(), result.end(), [](const Parameter* a, const Parameter* b) {
        return a->master.raw() < b->master.raw();
    });
    return result;
}

TrainingEngine::TrainingEngine(Device& device, const ModelFiles& files,
                               const EngineOptions& options, const StepMemory& memory)
    : device_(device),
      options_(options),
      model_(device, files, options.model),
      optimizer_(device, options.optimizer, pointers(model_.parameters())),
      arena_(device, memory.arena_bytes),
      stream_(device_, arena_, meter_),
      scalars_(arena_.push(DType::f32, {2}, Purpose::scratch)),
      loss_sum_(scalars_.slice_elements(0, 1)),
      norm_squared_(scalars_.slice_elements(1, 2)),
      scale_(arena_.push(DType::f32, {1}, Purpose::scratch)),
      ring_(device_),
      micro_steps_(device_, stream_, model_, memory.batch_bytes, memory.recorded_bytes) {
    if (options_.recompute == Recompute::offload) offload_.emplace(device_, memory.offload_bytes);
    fill(stream_, 0, scale_);
    meter_.enable(true);
}

TrainingEngine::~TrainingEngine() {
    // Pinned memory and recorded work that are in use until the queue has passed them go next.
    try {
        stream_.synchronize();
    } catch (const std::exception&) {
        return;  // a lost device, of which whoever waited for a result was told
    }
}

TrainingPass TrainingEngine::pass(std::int64_t steps_done) {
    TrainingPass pass;
    pass.seed = options_.seed;
    pass.step = static_cast<std::uint32_t>(steps_done);
    pass.recompute = options_.recompute;
    pass.tile = options_.tile;
    pass.neftune_noise_alpha = options_.neftune_noise_alpha;
    pass.offload = offload_ ? &*offload_ : nullptr;
    return pass;
}

void TrainingEngine::enqueue_step(std::vector<TokenBatch> micro_batches, std::int64_t steps_done,
                                  double learning_rate) {
    if (ring_.full()) read_oldest();
    StepRing::Step step{.steps_done = steps_done};
    clear(stream_, model_.all_gradients());
    fill(stream_, 0, scalars_);
    for (const TokenBatch& batch : micro_batches) {
        step.targets += batch.num_targets();
        micro_steps_.run(batch, pass(steps_done), loss_sum_);
    }
    step.micro_batches = std::move(micro_batches);
    {
        const PhaseScope phase(meter_, "optimizer");
        const RangeScope range(stream_, "optimizer");
        add_sum_of_squares(stream_, model_.all_gradients(), norm_squared_);
        gradient_scale(stream_, loss_sum_, norm_squared_, step.targets, options_.max_grad_norm,
                       scale_);
        optimizer_.step(stream_, learning_rate, scale_, steps_done + 1);
        ring_.push(stream_, std::move(step), scalars_);
    }
    // Where work is done at once nothing is gained by waiting to look.
    if (!stream_.is_for_cuda()) read_oldest();
}

void TrainingEngine::read_oldest() {
    const StepRing::Step step = ring_.pop();
    StepResult result;
    result.targets = step.targets;
    result.loss_sum = static_cast<double>(step.numbers[0]);
    const double divisor = static_cast<double>(std::max<std::int64_t>(result.targets, 1));
    result.grad_norm = std::sqrt(static_cast<double>(step.numbers[1])) / divisor;
    if (!std::isfinite(result.loss_sum) || !std::isfinite(result.grad_norm))
        report_non_finite(step, result.loss());
    results_.push_back(result);
}

std::vector<TrainingEngine::StepResult> TrainingEngine::results(bool wait) {
    while (wait && !ring_.empty())
        read_oldest();
    return std::exchange(results_, {});
}

StepMemory TrainingEngine::needed() const {
    return {arena_.peak(), offload_ ? offload_->bytes() : 0, micro_steps_.batch_bytes()};
}

TrainingEngine::StepResult TrainingEngine::step(const std::vector<TokenBatch>& micro_batches,
                                                std::int64_t steps_done, double learning_rate) {
    enqueue_step(micro_batches, steps_done, learning_rate);
    return results(true).back();
}

void TrainingEngine::report_non_finite(const StepRing::Step& step, double loss) {
    // Steps behind it were not applied either, and may have written over its gradients: make them
    // again, of the same weights.
    ring_.clear();
    fill(stream_, 0, scale_);
    clear(stream_, model_.all_gradients());
    for (const TokenBatch& batch : step.micro_batches)
        micro_steps_.run(batch, pass(step.steps_done), loss_sum_);
    std::string where = "each gradient is finite, their common norm is not";
    for (const Parameter& parameter : model_.parameters()) {
        if (is_finite(stream_, parameter.gradient)) continue;
        where = "the gradient of " + parameter.name;
        break;
    }
    const auto stopped = [&] {
        return Error("training stopped: loss " + std::to_string(loss) + " or gradient of step " +
                     std::to_string(step.steps_done + 1) + " is not finite (" + where +
                     "): lower train.learning_rate, or train in fp32 with train.bf16=false; "
                     "nothing of this step was applied");
    };
    // Which sample: each one alone, until one gives a loss or gradient that is not finite.
    for (const TokenBatch& batch : step.micro_batches) {
        for (std::size_t s = 0; s + 1 < batch.cu_seqlens.size(); ++s) {
            TokenBatch alone;
            const auto begin = batch.cu_seqlens[s];
            const auto end = batch.cu_seqlens[s + 1];
            alone.ids.assign(batch.ids.begin() + begin, batch.ids.begin() + end);
            alone.targets.assign(batch.targets.begin() + begin, batch.targets.begin() + end);
            alone.positions.assign(batch.positions.begin() + begin, batch.positions.begin() + end);
            alone.cu_seqlens = {0, end - begin};
            alone.sample_ids = {batch.sample_ids[s]};
            clear(stream_, model_.all_gradients());
            fill(stream_, 0, loss_sum_);
            model_.train_step(stream_, alone, pass(step.steps_done), loss_sum_);
            if (std::isfinite(read_scalar(stream_, loss_sum_)) &&
                is_finite(stream_, model_.all_gradients()))
                continue;
            where += "; row " + std::to_string(batch.sample_ids[s] + 1) +
                     " of the training data alone gives it";
            throw stopped();
        }
    }
    throw stopped();
}

TrainingEngine::EvalResult TrainingEngine::evaluate(const std::vector<TokenBatch>& batches) {
    EvalResult result;
    for (const TokenBatch& batch : batches) {
        fill(stream_, 0, loss_sum_);
        model_.evaluate(stream_, batch, loss_sum_, nullptr, options_.tile);
        result.loss_sum += static_cast<double>(read_scalar(stream_, loss_sum_));
        result.targets += batch.num_targets();
    }
    return result;
}

MemoryPlan plan_memory(const DeviceProfile& profile, const ModelFiles& files,
                       const EngineOptions& options, const BatchBounds& training,
                       std::int64_t micro_batches, const EvaluationBounds& evaluation) {
    const std::int64_t unbounded = dry_address_space();
    const auto device = make_dry_device(profile);
    TrainingEngine engine(*device, files, options, unbounded);
    const TokenBatch largest = batch_of(training);
    // Further micro-batches need no more memory, and each costs what the second one does.
    engine.step({largest}, 0, 0);
    const Cost one = engine.meter().total().cost;
    const StepTime one_time = step_time(profile, engine.meter().table(), training.tokens);
    Cost two = one;
    StepTime two_time = one_time;
    if (micro_batches > 1) {
        engine.meter().clear();
        engine.step({largest, largest}, 0, 0);
        two = engine.meter().total().cost;
        two_time = step_time(profile, engine.meter().table(), training.tokens);
    }
    const auto more = static_cast<double>(micro_batches - 1);
    MemoryPlan plan;
    plan.step_time.ops = one_time.ops + more * (two_time.ops - one_time.ops);
    plan.step_time.decoding = one_time.decoding + more * (two_time.decoding - one_time.decoding);
    plan.step_cost = {one.flops + more * (two.flops - one.flops),
                      one.bytes_read + more * (two.bytes_read - one.bytes_read),
                      one.bytes_written + more * (two.bytes_written - one.bytes_written)};
    plan.training_bytes = engine.arena().peak();
    if (evaluation.tokens > 0) engine.evaluate({batch_of(evaluation)});
    const std::int64_t answers_pinned =
        evaluation.room > 0 ? answer_longest(engine, evaluation) : 0;

    static_cast<StepMemory&>(plan) = engine.needed();
    // Each input goes out and comes back.
    plan.step_time.copies = copy_seconds(
        profile, 2 * static_cast<double>(plan.offload_bytes) * static_cast<double>(micro_batches));
    plan.load_peak_bytes = engine.model().load_peak_bytes();
    plan.streamable_projections = engine.model().streamable_projections();
    plan.resident_projections =
        std::min(plan.streamable_projections, options.model.resident_projections);
    plan.by_purpose = device->memory().current_by;
    plan.by_purpose[static_cast<std::size_t>(Purpose::scratch)] -= unbounded;
    for (std::size_t p = 0; p < plan.by_purpose.size(); ++p) {
        plan.by_purpose[p] += engine.arena().peak_by()[p];
        plan.total_bytes += plan.by_purpose[p];
    }
    plan.pinned_bytes = device->pinned().current + answers_pinned;
    plan.mapped_bytes = engine.model().mapped_bytes();
    plan.trainable_elements = engine.model().trainable_elements();
    plan.total_elements = engine.model().total_elements();
    return plan;
}

}  // namespace garam
