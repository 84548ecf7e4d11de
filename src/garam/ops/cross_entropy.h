// Softmax cross-entropy of rows of logits, and its gradient in the same pass.
//
// logits [rows, vocab] f32 or bf16; targets i32 [rows], each in [0, vocab) (rows without a target are
// left out by the caller). losses f32 [rows] = log sum exp(logits) - logits[target]. With `gradient` the
// logits are replaced by d(sum of losses)/d(logits) = softmax - one hot: a sum, not a mean; the division
// by the number of targets of the global batch happens once, later. Arithmetic in fp32.
//
// Cost: 4 flops a logit (maximum, difference, exponential, sum), 6 with the gradient; logits read once,
// and written once with the gradient.
#pragma once

#include "garam/runtime/stream.h"

namespace garam {

void cross_entropy(Stream& stream, const Tensor& logits, const Tensor& targets,
                   const Tensor& losses, bool gradient);

}  // namespace garam
