#include "garam/optim/clipping.h"

#include "garam/core/error.h"

namespace garam {

float clip_scale(double norm, double max_norm) {
    GARAM_CHECK(max_norm >= 0, "max_grad_norm is 0 (off) or positive");
    if (max_norm == 0) return 1.0f;
    const double scale = max_norm / (norm + 1e-6);
    return scale > 1.0 ? 1.0f : static_cast<float>(scale);
}

}  // namespace garam
