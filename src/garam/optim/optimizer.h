// The optimiser of a run: owns the states of all trained parameters and updates them.
//
// Kinds: AdamW (torch.optim.AdamW: decay decoupled and before the update, bias-corrected) and SGD
// (torch.optim.SGD). Their formulas stand in ops/optimizer_step.h. States are fp32, one tensor each
// per parameter, in device memory of Purpose::optimizer, zero at first:
//   AdamW            "<parameter>.exp_avg", "<parameter>.exp_avg_sq"
//   SGD, momentum    "<parameter>.momentum_buffer"; none without momentum
// On the dry device memory is counted and costs are metered; nothing is touched.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "garam/nn/parameter.h"
#include "garam/runtime/device.h"
#include "garam/runtime/stream.h"

namespace garam {

enum class OptimizerKind : std::uint8_t { adamw, sgd };

// Transformers' names: "adamw_torch" and "adamw_torch_fused" (one update under two names), "sgd".
// Throws Error that lists them, prefixed with the key (train.optim).
OptimizerKind optimizer_kind_from_name(std::string_view name);

// Defaults are Transformers'; momentum, dampening and nesterov concern SGD, betas and epsilon
// AdamW.
struct OptimizerOptions {
    OptimizerKind kind = OptimizerKind::adamw;
    double weight_decay = 0;  // for parameters whose `weight_decay` is set
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double momentum = 0;
    double dampening = 0;
    bool nesterov = false;
};

class Optimizer {
  public:
    // Allocates the states. The parameters and the device must outlive the optimiser; masters and
    // gradients are dense f32 of one shape. Throws Error when an option is out of range (named as a
    // config key), or when memory does not suffice.
    Optimizer(Device& device, const OptimizerOptions& options, std::vector<Parameter*> parameters);

    // One update of every parameter in the order given, then its copies are refreshed from the
    // master. Gradients are multiplied by `gradient_scale` while they are read and stay as they
    // are. `step` counts updates from 1.
    void step(Stream& stream, double learning_rate, float gradient_scale, std::int64_t step);

    // Casts every master into its copies, as after an update (after a checkpoint was restored).
    void refresh_copies(Stream& stream);

    // Views of all states, in a fixed order, for checkpoints.
    std::vector<std::pair<std::string, Tensor>> states() const;

    const OptimizerOptions& options() const { return options_; }
    std::span<Parameter* const> parameters() const { return parameters_; }

  private:
    struct State {
        OwnedTensor first;   // exp_avg or momentum_buffer; empty when the kind has none
        OwnedTensor second;  // exp_avg_sq
    };

    OptimizerOptions options_;
    std::vector<Parameter*> parameters_;
    std::vector<State> states_;  // one a parameter
};

}  // namespace garam
