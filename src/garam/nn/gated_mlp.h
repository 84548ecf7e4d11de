// The MLP half of a decoder block: out = x + down(activation(gate(n)) * up(n)), n = rms_norm(x); nn/branch.h
// says what else may stand at its ends.
#pragma once

#include "garam/core/activation.h"
#include "garam/nn/branch.h"

namespace garam {

struct GatedMlp {
    RmsNorm norm;
    Projection gate_up_proj;  // parts gate, up, or one with the rows of both
    Projection down_proj;
    BranchEnd end;
    Activation activation = Activation::silu;
};

struct GatedMlpSaved {
    Tensor normed, rstd, gate_up, product;
    ProjectionSaved gate_up_proj, down_proj;
    BranchEndSaved end;
};

// x and out must be different memory. In tiles a pass keeps nothing.
void gated_mlp_forward(Stream& stream, const GatedMlp& layer, const PassContext& pass,
                       const Tensor& x, const Tensor& out, GatedMlpSaved& saved);

// The backward of a forward that kept nothing but x: makes the rest again, tile by tile.
void gated_mlp_recompute_and_backward(Stream& stream, const GatedMlp& layer,
                                      const PassContext& pass, const Tensor& x, const Tensor& dx);

// dx, a wide output of down_proj, holds d(out) on entry and d(x) on return. Overwrites saved.gate_up.
void gated_mlp_backward(Stream& stream, const GatedMlp& layer, const PassContext& pass,
                        const Tensor& x, const GatedMlpSaved& saved, const Tensor& dx);

}  // namespace garam
