// A trained tensor: its fp32 master, its gradient, and the places that compute with it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "garam/ops/dora.h"
#include "garam/quant/quantized_matrix.h"

namespace garam {

struct Parameter {
    // place = master * factor, in the compute dtype; may have a pitch. `rows` of the master alone, or empty: all.
    struct Copy {
        Tensor place;
        float factor = 1;
        Tensor rows = {};
    };
    std::string name;               // PEFT's key of an adapter tensor, or the weight's own name
    Tensor master;                  // f32, dense
    Tensor gradient;                // f32, same shape; sums over the micro-batches of a step
    bool weight_decay = true;       // all adapter tensors; in full fine-tuning matrices only
    double rate_factor = 1;         // of the learning rate (LoRA+)
    std::vector<Copy> copies;       // refreshed from the master after each update
    std::optional<DoraScale> dora;  // of a magnitude: made anew then, too
    // Where the weight is not there in full: what it is decoded from, and room for some of its rows.
    QuantizedMatrix dora_base;
    Tensor decoded;
};

// Scale and norm of a magnitude anew.
void refresh_dora(Stream& stream, const Parameter& parameter);

// Makes copies and scales anew from the masters; needs no step memory.
void refresh_copies(Stream& stream, std::span<Parameter* const> parameters);

}  // namespace garam
