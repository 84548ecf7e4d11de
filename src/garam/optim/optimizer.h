// The optimiser of a run: owns the states of all trained parameters and updates them.
//
// Kinds: AdamW (torch.optim.AdamW: decay decoupled and before the update, bias-corrected) and SGD
// (torch.optim.SGD). Their formulas stand in ops/optimizer_step.h. States are fp32, one tensor each
// per parameter, zero at first:
//   AdamW            "<parameter>.exp_avg", "<parameter>.exp_avg_sq"
//   SGD, momentum    "<parameter>.momentum_buffer"; none without momentum
// They lie in one piece of device memory of Purpose::optimizer, each kind of state parameter after
// parameter, aligned to kAlignment. Where masters and gradients of consecutive parameters lie so
// too and decay and learn alike, they are updated as one vector, the pads between them included (what is in
// pads does not matter): the step of an adapter is one pass. On the dry device memory is counted
// and costs are metered; nothing is touched.
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
    // Allocates the states. The parameters and the device must outlive the optimiser, and masters
    // and gradients, dense f32 of one shape, stay where they are. Throws Error when an option is
    // out of range (named as a config key), or when memory does not suffice.
    Optimizer(Device& device, const OptimizerOptions& options, std::vector<Parameter*> parameters);

    // One update of every parameter in the order given, each by the learning rate times its factor, then all copies are refreshed from their
    // masters. Gradients are multiplied by `gradient_scale` f32 [1] while they are read and stay as
    // they are; where it is NaN no master or state changes. `step` counts updates from 1.
    void step(Stream& stream, double learning_rate, const Tensor& gradient_scale,
              std::int64_t step);

    // Makes all copies anew from their masters, as after an update (after a checkpoint was
    // restored).
    void refresh_copies(Stream& stream);

    // Views of all states, in a fixed order, for checkpoints.
    std::vector<std::pair<std::string, Tensor>> states() const;

    const OptimizerOptions& options() const { return options_; }
    std::span<Parameter* const> parameters() const { return parameters_; }

  private:
    struct State {
        Tensor first;   // exp_avg or momentum_buffer; empty when the kind has none
        Tensor second;  // exp_avg_sq
    };
    // Parameters that one op updates, as vectors over their memory.
    struct Run {
        Tensor master, gradient;
        State state;
        double weight_decay;
        double rate_factor;
    };
    void allocate_states(Device& device);
    void gather_runs();

    OptimizerOptions options_;
    std::vector<Parameter*> parameters_;
    Buffer state_buffer_;
    std::vector<State> states_;  // one a parameter
    std::vector<Run> runs_;
};

}  // namespace garam
