// What a model makes of its logits before they are scores: times a factor (Granite: 1 / logits_scaling), then
// under a soft cap (Gemma 2), softcap * tanh(logit * factor / softcap). ops/cross_entropy.h takes the same
// within the loss.
//
// logits [rows, vocab] f32 or bf16, in place; arithmetic in fp32, a bf16 result rounded once.
//
// Cost: 1 flop a logit, 4 with a soft cap (tanh counting one); logits moved once, or not at all where there is
// nothing to do.
#pragma once

#include "garam/runtime/stream.h"

namespace garam {

struct LogitScale {
    float factor = 1;   // > 0
    float softcap = 0;  // 0: none

    bool changes() const { return factor != 1 || softcap > 0; }
};

void scale_logits(Stream& stream, const Tensor& logits, const LogitScale& scale);

}  // namespace garam
