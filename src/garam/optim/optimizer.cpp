#include "garam/optim/optimizer.h"

#include "garam/core/error.h"
#include "garam/ops/elementwise.h"
#include "garam/ops/optimizer_step.h"

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
    const bool has_first = options_.kind == OptimizerKind::adamw || options_.momentum != 0;
    const bool has_second = options_.kind == OptimizerKind::adamw;
    // Zeroing is an op like others, but belongs to no step: its cost goes to a meter that nobody
    // reads.
    Arena no_step_memory(device, 0);
    Meter unread;
    Stream stream(device, no_step_memory, unread);
    const auto zeros = [&](const Shape& shape) {
        OwnedTensor state(device, DType::f32, shape, Purpose::optimizer);
        fill(stream, 0.0f, state.tensor);
        return state;
    };
    states_.reserve(parameters_.size());
    for (const Parameter* parameter : parameters_) {
        const Tensor& master = parameter->master;
        GARAM_CHECK(master.dtype() == DType::f32 && master.is_dense(), parameter->name);
        GARAM_CHECK(parameter->gradient.dtype() == DType::f32 && parameter->gradient.is_dense() &&
                        parameter->gradient.shape() == master.shape(),
                    parameter->name);
        State& state = states_.emplace_back();
        if (has_first) state.first = zeros(master.shape());
        if (has_second) state.second = zeros(master.shape());
    }
}

void Optimizer::step(Stream& stream, double learning_rate, float gradient_scale,
                     std::int64_t step) {
    GARAM_CHECK(step >= 1, "updates are counted from 1");
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        const Parameter& parameter = *parameters_[i];
        const double weight_decay = parameter.weight_decay ? options_.weight_decay : 0.0;
        if (options_.kind == OptimizerKind::adamw) {
            const AdamWOptions adamw{.learning_rate = learning_rate,
                                     .beta1 = options_.beta1,
                                     .beta2 = options_.beta2,
                                     .epsilon = options_.epsilon,
                                     .weight_decay = weight_decay,
                                     .step = step};
            adamw_step(stream, adamw, parameter.master, parameter.gradient, gradient_scale,
                       states_[i].first.tensor, states_[i].second.tensor);
        } else {
            const SgdOptions sgd{.learning_rate = learning_rate,
                                 .momentum = options_.momentum,
                                 .dampening = options_.dampening,
                                 .nesterov = options_.nesterov,
                                 .weight_decay = weight_decay,
                                 .step = step};
            sgd_step(stream, sgd, parameter.master, parameter.gradient, gradient_scale,
                     states_[i].first.tensor);
        }
    }
    refresh_copies(stream);
}

void Optimizer::refresh_copies(Stream& stream) {
    for (const Parameter* parameter : parameters_)
        for (const Tensor& copy : parameter->copies)
            cast(stream, parameter->master, copy);
}

std::vector<std::pair<std::string, Tensor>> Optimizer::states() const {
    std::vector<std::pair<std::string, Tensor>> named;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        const std::string& name = parameters_[i]->name;
        if (options_.kind == OptimizerKind::adamw) {
            named.emplace_back(name + ".exp_avg", states_[i].first.tensor);
            named.emplace_back(name + ".exp_avg_sq", states_[i].second.tensor);
        } else if (states_[i].first.tensor) {
            named.emplace_back(name + ".momentum_buffer", states_[i].first.tensor);
        }
    }
    return named;
}

}  // namespace garam
