#include "garam/nn/loss.h"

#include "garam/ops/cross_entropy.h"

namespace garam {

void CrossEntropyLoss::evaluate(Stream& stream, const Tensor& logits, const Tensor& targets,
                                const Tensor& losses, const Tensor& gradient,
                                const LogitScale& scale) const {
    cross_entropy(stream, logits, targets, losses, gradient, scale, smoothing_);
}

}  // namespace garam
