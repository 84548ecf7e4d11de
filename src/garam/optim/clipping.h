// Clipping by the global norm of all gradients, as torch.nn.utils.clip_grad_norm_ does it.
#pragma once

#include <span>

#include "garam/nn/parameter.h"
#include "garam/runtime/stream.h"

namespace garam {

// result (f32 [1]) = sum of squares over the gradients of all parameters, added in their order;
// nothing is read on the host. Gradients are sums over target tokens: the norm of the mean is
// sqrt(result) / number of targets.
void gradient_norm_squared(Stream& stream, std::span<Parameter* const> parameters,
                           const Tensor& result);

// min(1, max_norm / (norm + 1e-6)), the factor on all gradients; max_norm = 0 switches clipping off
// (1). A NaN norm gives NaN and an infinite one 0: the caller stops at a non-finite norm before.
float clip_scale(double norm, double max_norm);

}  // namespace garam
