// A loss of the head: rows of logits in, a loss a row and the logits' gradient out. Other losses of the
// same form (distillation) are other classes.
#pragma once

#include "garam/ops/logit_scale.h"

namespace garam {

class Loss {
  public:
    virtual ~Loss() = default;
    // logits f32 [rows, vocab]; targets i32 [rows]; losses f32 [rows] are written. Unless it is empty,
    // `gradient` (f32 or bf16, perhaps the logits' own memory) becomes d(sum of losses)/d(logits); the
    // logits may be lost. `scale` makes the logits the model's, and is part of what the gradient is of.
    virtual void evaluate(Stream& stream, const Tensor& logits, const Tensor& targets,
                          const Tensor& losses, const Tensor& gradient,
                          const LogitScale& scale) const = 0;
};

class CrossEntropyLoss final : public Loss {
  public:
    // `smoothing`: label smoothing, see ops/cross_entropy.h.
    explicit CrossEntropyLoss(double smoothing = 0) : smoothing_(static_cast<float>(smoothing)) {}
    void evaluate(Stream& stream, const Tensor& logits, const Tensor& targets, const Tensor& losses,
                  const Tensor& gradient, const LogitScale& scale) const override;

  private:
    float smoothing_;
};

}  // namespace garam
