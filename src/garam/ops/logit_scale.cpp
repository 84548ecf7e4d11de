#include "garam/ops/logit_scale.h"

#include "garam/kernels/cuda/cross_entropy.h"
#include "garam/ops/checks.h"
#include "garam/ops/cpu_kernels.h"
#include "garam/ops/cuda_kernels.h"

namespace garam {

void scale_logits(Stream& stream, const Tensor& logits, const LogitScale& scale) {
    constexpr const char* kName = "scale_logits";
    check_compute_dtype(kName, logits);
    check_operand(stream, kName, logits);
    GARAM_CHECK(scale.factor > 0 && scale.softcap >= 0, "scale_logits: a negative scale");
    if (!scale.changes()) return;

    Cost cost;
    cost.flops = (scale.softcap > 0 ? 4.0 : 1.0) * static_cast<double>(logits.elements());
    cost.bytes_read = bytes_of({&logits});
    cost.bytes_written = bytes_of({&logits});
    OpScope op(stream, kName, cost);
    if (op.dry()) return;
    if (runs_on_cuda(stream)) {
        cuda::cross_entropy_kernels().scale_logits(stream.queue(), cuda_rows(logits),
                                                   {scale.factor, scale.softcap}, logits.dtype(),
                                                   logits.rows(), logits.columns());
        return;
    }
    const auto kernel = element_kernels(stream, logits.dtype()).scale_logits;
    for_runs(logits.is_dense(), logits.rows(), logits.columns(),
             [&](std::int64_t row, std::int64_t column, std::int64_t count) {
                 kernel(element_at(logits, row, column), {scale.factor, scale.softcap}, count);
             });
}

}  // namespace garam
