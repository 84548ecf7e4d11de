// Root-mean-square norm (Zhang and Sennrich, 2019): y = x * rstd * (weight_offset + weight) with
// rstd = 1 / sqrt(mean(x^2) + eps), row by row, or head by head of each row.
//
// x, y [tokens, hidden] of one dtype (f32 or bf16); weight [hidden] of the same dtype; rstd f32
// [tokens] (may be an empty Tensor when no backward follows). With `head_dim` each row is `heads`
// pieces of head_dim entries, normalised by themselves: weight [head_dim], rstd [tokens, heads].
// y may be x's memory. All arithmetic in fp32.
//
// Cost an element: forward 4 flops; backward 6, one more when accumulating, 3 more with a weight
// gradient; an offset costs nothing. Every operand moved once.
#pragma once

#include "garam/runtime/stream.h"

namespace garam {

struct RmsNormOptions {
    float weight_offset = 0;  // 1: Gemma, whose weights are stored less one
    // As Transformers rounds bf16: y alone (Gemma, OLMo-2), or x * rstd before the product with the
    // weight as well (Llama and most others).
    bool rounds_once = false;
    std::int64_t head_dim = 0;  // 0: whole rows
};

void rms_norm_forward(Stream& stream, const Tensor& x, const Tensor& weight, float eps,
                      const Tensor& y, const Tensor& rstd, const RmsNormOptions& options = {});

// dx = rstd * (g - x * rstd^2 * mean(g * x)) with g = dy * (weight_offset + weight), plus what `dx`
// holds already when accumulate_dx is set (the residual branch's gradient); else dx may be dy's
// memory. weight_gradient f32, of the weight's shape (or empty: the weight is frozen) += sum over
// rows (and heads) of dy * x * rstd, in a fixed order.
void rms_norm_backward(Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd, const Tensor& dx, bool accumulate_dx,
                       const Tensor& weight_gradient, const RmsNormOptions& options = {});

}  // namespace garam
