// The gated activation of an MLP (Shazeer, 2020: SwiGLU and GEGLU): out = activation(gate) * up, with an
// activation of core/activation.h. All [tokens, ffn], one dtype, f32 or bf16; arithmetic in fp32, out
// rounded once.
//
// Cost an element, an exponential counting one: silu forward 5 flops, backward 12; gelu_tanh 9 and 18.
// Every operand moved once.
#pragma once

#include "garam/core/activation.h"
#include "garam/runtime/stream.h"

namespace garam {

void gated_activation_forward(Stream& stream, Activation activation, const Tensor& gate,
                              const Tensor& up, const Tensor& out);
// Its flops an element.
double gated_activation_flops(Activation activation);

// gate_gradient and up_gradient are overwritten; they may be the same memory as gate and up.
void gated_activation_backward(Stream& stream, Activation activation, const Tensor& out_gradient,
                               const Tensor& gate, const Tensor& up, const Tensor& gate_gradient,
                               const Tensor& up_gradient);

}  // namespace garam
