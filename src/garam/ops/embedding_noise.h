// NEFTune (Jain et al. 2023): uniform noise on the embeddings of a training pass.
//
//   x[t, c] += (2 u - 1) alpha / sqrt(L d),   L: tokens of t's sample, d: columns of x
//   u = the upper 24 bits of word c % 4 of
//       philox<7>({c / 4, position, sample low 32, sample high 32 xor step}, seed ^ "neftune")
//
// a pure function of (seed, step, sample, position, column), as dropout's masks are (ops/dropout.h), so
// that a sample has the same noise however the batch is cut. Transformers takes for L the padded length
// of the batch, which no cut would leave the same.
//
// x [tokens, d] f32 or bf16, in place, the sum rounded once. cu_seqlens i32 [segments + 1] tells where
// samples begin; `key` as for dropout, its `module` does not count. The noise is no function of x: the
// gradient passes through.
//
// Cost: 2 flops an element; x read and written once.
#pragma once

#include "garam/ops/dropout.h"

namespace garam {

void embedding_noise(Stream& stream, const Tensor& x, float alpha, const DropoutKey& key,
                     const Tensor& cu_seqlens);

}  // namespace garam
