// Root-mean-square norm (Zhang and Sennrich, 2019): y = x * rstd * weight with
// rstd = 1 / sqrt(mean(x^2) + eps), row by row.
//
// x, y [tokens, hidden] of one dtype (f32 or bf16); weight [hidden] of the same dtype; rstd f32
// [tokens] (may be an empty Tensor when no backward follows). All arithmetic in fp32. As in
// Transformers, for bf16 x * rstd is rounded to bf16 before the product with the weight.
//
// Cost an element: forward 4 flops; backward 6, one more when accumulating, 3 more with a weight
// gradient. Every operand moved once.
#pragma once

#include "garam/runtime/stream.h"

namespace garam {

void rms_norm_forward(Stream& stream, const Tensor& x, const Tensor& weight, float eps,
                      const Tensor& y, const Tensor& rstd);

// dx = rstd * (g - x * rstd^2 * mean(g * x)) with g = dy * weight, plus what `dx` holds already
// when accumulate_dx is set (the residual branch's gradient). weight_gradient f32 [hidden] (or
// empty: the weight is frozen) += sum over rows of dy * x * rstd, in a fixed order.
void rms_norm_backward(Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd, const Tensor& dx, bool accumulate_dx,
                       const Tensor& weight_gradient);

}  // namespace garam
