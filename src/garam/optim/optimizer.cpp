#include "garam/optim/optimizer.h"

#include "garam/core/error.h"
#include "garam/ops/optimizer_step.h"
#include "garam/runtime/transfer.h"

namespace garam {
namespace {

void check_range(const char* key, double value, double low, double high, bool high_is_in) {
    if (value >= low && (value < high || (high_is_in && value == high))) return;
    throw Error(std::string("train.") + key + ": " + std::to_string(value) +
                " is out of range; give a number from " + std::to_string(low) +
                (high_is_in ? " to " : " to below ") + std::to_string(high));
}

void check_options(const OptimizerOptions& options) {
    check_range("adam_beta1", options.beta1, 0, 1, false);
    check_range("adam_beta2", options.beta2, 0, 1, false);
    check_range("adam_epsilon", options.epsilon, 0, 1, true);
    check_range("weight_decay", options.weight_decay, 0, 1e6, true);
    check_range("momentum", options.momentum, 0, 1, false);
    if (options.nesterov && (options.momentum == 0 || options.dampening != 0))
        throw Error("train.nesterov: needs a momentum above 0 and no dampening");
}

}  // namespace

OptimizerKind optimizer_kind_from_name(std::string_view name) {
    if (name == "adamw_torch" || name == "adamw_torch_fused") return OptimizerKind::adamw;
    if (name == "sgd") return OptimizerKind::sgd;
    throw Error("train.optim: \"" + std::string(name) +
                "\" is not supported; choose one of adamw_torch, adamw_torch_fused (the same "
                "update), sgd");
}

Optimizer::Optimizer(Device& device, const OptimizerOptions& options,
                     std::vector<Parameter*> parameters)
    : options_(options), parameters_(std::move(parameters)) {
    check_options(options_);
    for (const Parameter* parameter : parameters_) {
        const Tensor& master = parameter->master;
        GARAM_CHECK(master.dtype() == DType::f32 && master.is_dense(), parameter->name);
        GARAM_CHECK(parameter->gradient.dtype() == DType::f32 && parameter->gradient.is_dense() &&
                        parameter->gradient.shape() == master.shape(),
                    parameter->name);
    }
    allocate_states(device);
    gather_runs();
}

void Optimizer::allocate_states(Device& device) {
    const bool has_first = options_.kind == OptimizerKind::adamw || options_.momentum != 0;
    const bool has_second = options_.kind == OptimizerKind::adamw;
    std::int64_t bytes = 0;  // of one kind of state
    for (const Parameter* parameter : parameters_)
        bytes += align_up(parameter->master.bytes());
    const std::int64_t all = bytes * ((has_first ? 1 : 0) + (has_second ? 1 : 0));
    state_buffer_ = Buffer(device, all, Purpose::optimizer);
    std::int64_t offset = 0;
    for (const Parameter* parameter : parameters_) {
        const Shape& shape = parameter->master.shape();
        State& state = states_.emplace_back();
        if (has_first) state.first = state_buffer_.tensor(DType::f32, shape, offset);
        if (has_second) state.second = state_buffer_.tensor(DType::f32, shape, bytes + offset);
        offset += align_up(parameter->master.bytes());
    }
    if (all == 0) return;
    SetupStream setup(device);
    clear(setup.stream, state_buffer_.tensor(DType::f32, {all / 4}));
    setup.stream.synchronize();
}

void Optimizer::gather_runs() {
    // Device memory is handed out in multiples of kAlignment: the pad behind a tensor is memory of
    // its own buffer.
    const auto follows = [](const Tensor& earlier, const Tensor& later) {
        return static_cast<char*>(earlier.raw()) + align_up(earlier.bytes()) == later.raw();
    };
    // From the start of one tensor to the end of another.
    const auto joined = [](const Tensor& first, const Tensor& last) {
        if (!first) return Tensor();
        const std::int64_t before =
            static_cast<char*>(last.raw()) - static_cast<char*>(first.raw());
        return Tensor(first.raw(), DType::f32, {(before + last.bytes()) / 4}, first.device());
    };
    for (std::size_t begin = 0, end = 0; begin < parameters_.size(); begin = end) {
        const Parameter& first = *parameters_[begin];
        for (end = begin + 1; end < parameters_.size(); ++end) {
            const Parameter& before = *parameters_[end - 1];
            const Parameter& next = *parameters_[end];
            if (next.weight_decay != first.weight_decay || next.rate_factor != first.rate_factor ||
                !follows(before.master, next.master) || !follows(before.gradient, next.gradient))
                break;
        }
        const Parameter& last = *parameters_[end - 1];
        runs_.push_back({joined(first.master, last.master),
                         joined(first.gradient, last.gradient),
                         {joined(states_[begin].first, states_[end - 1].first),
                          joined(states_[begin].second, states_[end - 1].second)},
                         first.weight_decay ? options_.weight_decay : 0.0,
                         first.rate_factor});
    }
}

void Optimizer::step(Stream& stream, double learning_rate, const Tensor& gradient_scale,
                     std::int64_t step) {
    GARAM_CHECK(step >= 1, "updates are counted from 1");
    for (const Run& run : runs_) {
        const double rate = learning_rate * run.rate_factor;
        if (options_.kind == OptimizerKind::adamw) {
            const AdamWOptions adamw{.learning_rate = rate,
                                     .beta1 = options_.beta1,
                                     .beta2 = options_.beta2,
                                     .epsilon = options_.epsilon,
                                     .weight_decay = run.weight_decay,
                                     .step = step};
            adamw_step(stream, adamw, run.master, run.gradient, gradient_scale, run.state.first,
                       run.state.second);
        } else {
            const SgdOptions sgd{.learning_rate = rate,
                                 .momentum = options_.momentum,
                                 .dampening = options_.dampening,
                                 .nesterov = options_.nesterov,
                                 .weight_decay = run.weight_decay,
                                 .step = step};
            sgd_step(stream, sgd, run.master, run.gradient, gradient_scale, run.state.first);
        }
    }
    refresh_copies(stream);
}

void Optimizer::refresh_copies(Stream& stream) {
    garam::refresh_copies(stream, parameters_);
}

std::vector<std::pair<std::string, Tensor>> Optimizer::states() const {
    std::vector<std::pair<std::string, Tensor>> named;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        const std::string& name = parameters_[i]->name;
        if (options_.kind == OptimizerKind::adamw) {
            named.emplace_back(name + ".exp_avg", states_[i].first);
            named.emplace_back(name + ".exp_avg_sq", states_[i].second);
        } else if (states_[i].first) {
            named.emplace_back(name + ".momentum_buffer", states_[i].first);
        }
    }
    return named;
}

}  // namespace garam
