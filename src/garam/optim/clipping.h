// Clipping by the global norm of all gradients, as torch.nn.utils.clip_grad_norm_ does it.
#pragma once

namespace garam {

// min(1, max_norm / (norm + 1e-6)), the factor on all gradients; max_norm = 0 switches clipping off
// (1). A NaN norm gives NaN and an infinite one 0: the caller stops at a non-finite norm before.
float clip_scale(double norm, double max_norm);

}  // namespace garam
