#include "garam/ops/gradient_scale.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "garam/kernels/cuda/optimizer.h"
#include "garam/ops/checks.h"
#include "garam/ops/cuda_kernels.h"

namespace garam {

void gradient_scale(Stream& stream, const Tensor& loss_sum, const Tensor& norm_squared,
                    std::int64_t targets, double max_norm, const Tensor& scale) {
    constexpr const char* kName = "gradient_scale";
    for (const Tensor* x : {&loss_sum, &norm_squared, &scale})
        check_vector(stream, kName, *x, 1, DType::f32);
    GARAM_CHECK(max_norm >= 0, "max_grad_norm is 0 (off) or positive");
    const OpScope op(stream, kName, {.bytes_read = 12, .bytes_written = 4});
    if (op.dry()) return;

    const auto divisor = static_cast<double>(std::max<std::int64_t>(targets, 1));
    if (runs_on_cuda(stream)) {
        cuda::optimizer_kernels().gradient_scale(stream.queue(), loss_sum.data<float>(),
                                                 norm_squared.data<float>(), divisor, max_norm,
                                                 scale.data<float>());
        return;
    }
    float& result = *scale.data<float>();
    if (std::isnan(result)) return;
    const float squared = *norm_squared.data<float>();
    if (!std::isfinite(*loss_sum.data<float>()) || !std::isfinite(squared)) {
        result = std::numeric_limits<float>::quiet_NaN();
        return;
    }
    const double norm = std::sqrt(static_cast<double>(squared)) / divisor;
    const double clip = max_norm == 0 ? 1.0 : std::min(1.0, max_norm / (norm + 1e-6));
    result = static_cast<float>(static_cast<double>(static_cast<float>(clip)) / divisor);
}

}  // namespace garam
