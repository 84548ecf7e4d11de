// The optimiser of a run: owns the states of all trained parameters and updates them.
//
// Kinds: AdamW (torch.optim.AdamW: decay decoupled and before the update, bias-corrected), AdamW
// with states of 8 bits (bitsandbytes.optim.AdamW8bit as its CUDA kernel computes it) and SGD
// (torch.optim.SGD). Their formulas stand in ops/optimizer_step.h and ops/adamw_8bit.h. States of
// each parameter, zero at first:
//   AdamW            "<parameter>.exp_avg", "<parameter>.exp_avg_sq", fp32
//   AdamW, 8 bits    "<parameter>.exp_avg.codes" u8 and "<parameter>.exp_avg.absmax" f32, one a
//                    block of 256 elements, and the same of exp_avg_sq; a parameter of less than
//                    kFewest8bitElements has AdamW's and is updated as there
//   SGD, momentum    "<parameter>.momentum_buffer", fp32; none without momentum
// They lie in one piece of device memory of Purpose::optimizer. Where masters and gradients of
// consecutive parameters with states in fp32 lie one behind the other and decay and learn alike,
// they are updated as one vector, the pads between them included (what is in pads does not matter).
// Those with states of 8 bits that decay and learn alike are one op over a list. So the step of an
// adapter is a few launches. On the dry device memory is counted and costs are metered; nothing is
// touched.
//
// Paged, states of AdamW lie in pinned host memory, and a card updates them chunk by chunk
// (optim/state_pages.h) to the same bits. What is updated as one and has less than
// kFewestPagedElements elements stays on the card. The processor has no other memory to page to:
// there it means the same as without.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "garam/nn/parameter.h"
#include "garam/ops/adamw_8bit.h"
#include "garam/optim/state_pages.h"
#include "garam/runtime/device.h"
#include "garam/runtime/stream.h"

namespace garam {

enum class OptimizerKind : std::uint8_t { adamw, sgd };

// Defaults are Transformers'; momentum, dampening and nesterov concern SGD, betas and epsilon
// AdamW.
struct OptimizerOptions {
    OptimizerKind kind = OptimizerKind::adamw;
    bool eight_bit = false;   // states of AdamW
    bool paged = false;       // …
    double weight_decay = 0;  // for parameters whose `weight_decay` is set
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double momentum = 0;
    double dampening = 0;
    bool nesterov = false;
};

constexpr std::int64_t kFewest8bitElements = 4096;
constexpr std::int64_t kFewestPagedElements = 100'000;

// Kind, eight_bit and paged by Transformers' names: "adamw_torch" and "adamw_torch_fused" (one
// update under two names), "sgd", "adamw_8bit" and "adamw_bnb_8bit" (likewise), "paged_adamw_8bit",
// "paged_adamw_32bit" and "paged_adamw" (likewise). Throws Error that lists them, prefixed with the
// key (train.optim).
OptimizerOptions optimizer_from_name(std::string_view name);
// All of them.
const std::vector<std::string>& optimizer_names();
// The name of those that compute the same bits, paged or not: "adamw_8bit" for all of 8 bits,
// "adamw_torch" for the other paged ones; else the name itself.
std::string_view update_name(std::string_view name);

class Optimizer {
  public:
    // Allocates the states. The parameters and the device must outlive the optimiser, and masters
    // and gradients, dense f32 of one shape, stay where they are. Throws Error when an option is
    // out of range (named as a config key), or when memory does not suffice.
    Optimizer(Device& device, const OptimizerOptions& options, std::vector<Parameter*> parameters);

    // One update of every parameter in the order given, each by the learning rate times its factor,
    // then all copies are refreshed from their masters. Gradients are multiplied by
    // `gradient_scale` f32 [1] while they are read and stay as they are; where it is NaN no master
    // or state changes. `step` counts updates from 1.
    void step(Stream& stream, double learning_rate, const Tensor& gradient_scale,
              std::int64_t step);

    // Makes all copies anew from their masters, as after an update (after a checkpoint was
    // restored).
    void refresh_copies(Stream& stream);

    // Views of all states, in a fixed order, for checkpoints: in device memory or, paged, in host
    // memory, which holds what all steps enqueued so far leave there.
    std::vector<std::pair<std::string, Tensor>> states() const;

    const OptimizerOptions& options() const { return options_; }
    std::span<Parameter* const> parameters() const { return parameters_; }

  private:
    // Parameters that are updated as one: as vectors over their memory, or, of 8 bits, as a list.
    struct Run {
        std::vector<std::size_t> parameters;
        std::int64_t elements = 0;
        // exp_avg and exp_avg_sq; momentum_buffer; of 8 bits the codes of both and what scales
        // them. Paged: in host memory.
        std::vector<Tensor> states;
        Tensor master, gradient;  // the vectors

        bool eight_bit = false;
        std::vector<AdamW8bitItem> items;
        std::int64_t blocks = 0;

        bool paged = false;
        std::int64_t first_chunk = 0;  // of pages_
    };
    bool has_8bit_states(const Parameter& parameter) const;
    void gather_vectors();
    void gather_lists();
    void allocate_states(Device& device);
    void name_states(const Run& run);
    // The elements, or blocks, [begin, end) of a run, whose states are given.
    void update(Stream& stream, const Run& run, const std::vector<Tensor>& states,
                std::int64_t begin, std::int64_t end, double learning_rate,
                const Tensor& gradient_scale, std::int64_t step) const;

    OptimizerOptions options_;
    std::vector<Parameter*> parameters_;
    std::vector<Run> runs_;
    Buffer state_buffer_;
    std::unique_ptr<StatePages> pages_;
    std::vector<std::vector<std::pair<std::string, Tensor>>> states_;  // of each parameter
};

}  // namespace garam
