#include "garam/ops/cross_entropy.h"

#include <cstring>
#include <limits>

#include "garam/kernels/cuda/cross_entropy.h"
#include "garam/ops/checks.h"
#include "garam/ops/cpu_kernels.h"
#include "garam/ops/cuda_kernels.h"

namespace garam {

constexpr std::int64_t kMostRows = 0x7fffffff;  // blocks of a launch

void cross_entropy(Stream& stream, const Tensor& logits, const Tensor& targets,
                   const Tensor& losses, const Tensor& gradient, const LogitScale& scale,
                   float smoothing) {
    constexpr const char* kName = "cross_entropy";
    const std::int64_t rows = logits.rows();
    const std::int64_t vocab = logits.columns();
    check_compute_dtype(kName, logits);
    check_operand(stream, kName, logits);
    check_vector(stream, kName, targets, rows, DType::i32);
    check_vector(stream, kName, losses, rows, DType::f32);
    const bool narrows = gradient && gradient.dtype() != logits.dtype();
    if (gradient) {
        check_matrix(stream, kName, gradient, rows, vocab, narrows ? DType::bf16 : logits.dtype());
        GARAM_CHECK(!narrows || logits.dtype() == DType::f32,
                    "cross_entropy: a bf16 gradient of logits that are neither f32 nor bf16");
    }

    GARAM_CHECK(scale.factor > 0 && scale.softcap >= 0, "cross_entropy: a negative scale");
    GARAM_CHECK(smoothing >= 0 && smoothing < 1, "cross_entropy: smoothing outside [0, 1)");

    Cost cost;
    const double scaling = scale.softcap > 0 ? 4.0 : scale.changes() ? 1.0 : 0.0;
    cost.flops =
        (gradient ? 6.0 + 2 * scaling : 4.0 + scaling) * static_cast<double>(logits.elements());
    if (smoothing > 0)
        cost.flops += (gradient ? 2.0 : 1.0) * static_cast<double>(logits.elements());
    cost.bytes_read = bytes_of({&logits, &targets});
    cost.bytes_written = bytes_of({&losses}) + (gradient ? bytes_of({&gradient}) : 0.0);
    OpScope op(stream, kName, cost);
    if (op.dry()) return;
    if (runs_on_cuda(stream)) {
        GARAM_CHECK(vocab <= std::numeric_limits<std::int32_t>::max() / 2 && rows <= kMostRows,
                    "cross_entropy: more logits than one launch covers");
        cuda::CrossEntropy work;
        work.logits = cuda_rows(logits);
        work.targets = targets.data<std::int32_t>();
        work.losses = losses.data<float>();
        if (gradient) work.gradient = cuda_rows(gradient);
        work.scale = {scale.factor, scale.softcap};
        work.smoothing = smoothing;
        work.rows = rows;
        work.vocab = vocab;
        work.logits_dtype = logits.dtype();
        work.shared_bytes = stream.device().profile().shared_bytes;
        work.gradient_dtype = narrows ? DType::bf16 : logits.dtype();
        cuda::cross_entropy_kernels().run(stream.queue(), work);
        return;
    }
    const auto& kernels = element_kernels(stream, logits.dtype());
    const auto kernel = narrows ? kernels.cross_entropy_to_bf16 : kernels.cross_entropy;
    const std::int32_t* const target = targets.data<std::int32_t>();
    float* const loss = losses.data<float>();
    parallel_for(rows, rows_per_piece(vocab), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            void* const to = gradient ? element_at(gradient, row, 0) : nullptr;
            if (target[row] == -1) {
                loss[row] = 0;
                if (gradient)
                    std::memset(to, 0, static_cast<std::size_t>(vocab) * size_of(gradient.dtype()));
                continue;
            }
            GARAM_CHECK(target[row] >= 0 && target[row] < vocab,
                        "cross_entropy: target " + std::to_string(target[row]) +
                            " outside the vocabulary of " + std::to_string(vocab));
            loss[row] = kernel(element_at(logits, row, 0), {scale.factor, scale.softcap}, smoothing,
                               to, vocab, target[row]);
        }
    });
}

}  // namespace garam
