// A loss of the head: rows of logits in, a loss a row and the logits' gradient out. Other losses of the
// same form (label smoothing, distillation) are other classes.
#pragma once

#include "garam/runtime/stream.h"

namespace garam {

class Loss {
  public:
    virtual ~Loss() = default;
    // logits [rows, vocab]; targets i32 [rows]; losses f32 [rows] are written. With `gradient` the logits
    // become d(sum of losses)/d(logits).
    virtual void evaluate(Stream& stream, const Tensor& logits, const Tensor& targets,
                          const Tensor& losses, bool gradient) const = 0;
};

class CrossEntropyLoss final : public Loss {
  public:
    void evaluate(Stream& stream, const Tensor& logits, const Tensor& targets,
                  const Tensor& losses, bool gradient) const override;
};

}  // namespace garam
