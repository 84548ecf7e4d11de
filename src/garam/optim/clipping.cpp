#include "garam/optim/clipping.h"

#include "garam/core/error.h"
#include "garam/ops/elementwise.h"

namespace garam {

void gradient_norm_squared(Stream& stream, std::span<Parameter* const> parameters,
                           const Tensor& result) {
    GARAM_CHECK(result.dtype() == DType::f32 && result.elements() == 1, "one f32 for the norm");
    fill(stream, 0.0f, result);
    for (const Parameter* parameter : parameters)
        add_sum_of_squares(stream, parameter->gradient, result);
}

float clip_scale(double norm, double max_norm) {
    GARAM_CHECK(max_norm >= 0, "max_grad_norm is 0 (off) or positive");
    if (max_norm == 0) return 1.0f;
    const double scale = max_norm / (norm + 1e-6);
    return scale > 1.0 ? 1.0f : static_cast<float>(scale);
}

}  // namespace garam
