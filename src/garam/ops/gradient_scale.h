// The factor on all gradients of a step, worked out where they lie, so that the host need not wait for
// their norm:
//   norm = sqrt(norm_squared) / targets;  scale = min(1, max_norm / (norm + 1e-6)) / targets
// which is torch.nn.utils.clip_grad_norm_ for the mean loss of `targets` tokens; max_norm = 0 clips
// nothing.
//
// A loss or norm that is not finite makes the scale NaN, and a scale that is NaN stays so: the optimiser
// (ops/optimizer_step.h) then updates nothing until the caller sets the scale anew.
//
// Cost: three numbers read, one written.
#pragma once

#include "garam/runtime/stream.h"

namespace garam {

// loss_sum, norm_squared and scale f32 [1].
void gradient_scale(Stream& stream, const Tensor& loss_sum, const Tensor& norm_squared,
                    std::int64_t targets, double max_norm, const Tensor& scale);

}  // namespace garam
