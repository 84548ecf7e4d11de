// The MLP half of a decoder block: out = x + down(silu(gate(n)) * up(n)), n = rms_norm(x).
#pragma once

#include "garam/nn/linear.h"
#include "garam/nn/self_attention.h"

namespace garam {

struct GatedMlp {
    RmsNorm norm;
    Linear gate_proj;
    Linear up_proj;
    Linear down_proj;
};

struct GatedMlpSaved {
    Tensor normed, rstd, gate, up, product;
    Tensor u_gate, u_up, u_down;
};

// x and out must be different memory.
void gated_mlp_forward(Stream& stream, const GatedMlp& layer, const PassContext& pass,
                       const Tensor& x, const Tensor& out, GatedMlpSaved& saved);

// dx holds d(out) on entry and d(x) on return. Overwrites saved.gate and saved.up.
void gated_mlp_backward(Stream& stream, const GatedMlp& layer, const PassContext& pass,
                        const Tensor& x, const GatedMlpSaved& saved, const Tensor& dx);

}  // namespace garam
