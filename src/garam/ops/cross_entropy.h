// Softmax cross-entropy of rows of logits, and its gradient in the same pass.
//
// logits [rows, vocab] f32 or bf16, read through `scale` (ops/logit_scale.h) where that is given;
// targets i32 [rows], each in [0, vocab), or -1 for a row that only fills up a fixed shape: its
// loss is 0 and its gradient a row of zeros. Any other target is a Bug where the host can see it,
// and a loss of NaN on a card. losses f32 [rows] = log sum exp(logits) - logits[target]. `gradient`
// (an empty Tensor: none) [rows, vocab] = d(sum of losses)/d(logits) = softmax - one hot (through a
// scale: times factor, and under a soft cap times 1 - tanh^2): a sum, not a mean; the division by
// the number of targets of the global batch happens once, later. It has the logits' dtype, or is
// bf16 for f32 logits, and may be the logits' own memory where the dtypes agree. With a gradient
// the logits are lost either way. Arithmetic in fp32.
//
// With `smoothing` s in [0, 1) the target distribution is (1 - s) one hot + s / vocab instead of one hot
// (Szegedy et al. 2016): the loss is log sum exp(x) - (1 - s) x[target] - s mean(x), x the logits through
// the scale, and the gradient softmax minus that distribution.
//
// Cost: 4 flops a logit (maximum, difference, exponential, sum), 6 with the gradient; a factor adds 1 and 1
// more with the gradient, a soft cap another 3 and 3, smoothing 1 and 1; logits read once, the gradient written once.
#pragma once

#include "garam/ops/logit_scale.h"

namespace garam {

void cross_entropy(Stream& stream, const Tensor& logits, const Tensor& targets,
                   const Tensor& losses, const Tensor& gradient, const LogitScale& scale = {},
                   float smoothing = 0);

}  // namespace garam
