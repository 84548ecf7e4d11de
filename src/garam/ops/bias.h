// Bias of a linear layer. y [tokens, out] (f32 or bf16) += bias [out] (same dtype), row by row.
//
// Cost: one flop an element of y or dy; every operand moved once.
#pragma once

#include "garam/runtime/stream.h"

namespace garam {

void bias_add(Stream& stream, const Tensor& bias, const Tensor& y);

// bias_gradient f32 [out] += column sums of dy [tokens, out], in a fixed order.
void bias_backward(Stream& stream, const Tensor& dy, const Tensor& bias_gradient);

}  // namespace garam
