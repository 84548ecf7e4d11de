// The gated activation of Llama's MLP (Shazeer, 2020: SwiGLU): out = silu(gate) * up with
// silu(x) = x / (1 + exp(-x)). All [tokens, ffn], one dtype, f32 or bf16; arithmetic in fp32.
//
// Cost an element: forward 5 flops, backward 12, an exponential counting one; every operand moved
// once.
#pragma once

#include "garam/runtime/stream.h"

namespace garam {

void silu_mul_forward(Stream& stream, const Tensor& gate, const Tensor& up, const Tensor& out);

// gate_gradient and up_gradient are overwritten; they may be the same memory as gate and up.
void silu_mul_backward(Stream& stream, const Tensor& out_gradient, const Tensor& gate,
                       const Tensor& up, const Tensor& gate_gradient, const Tensor& up_gradient);

}  // namespace garam
