// Token embedding: out[t] = factor * table[ids[t]]. As Gemma scales its embedding (by sqrt(hidden)), the
// factor is first rounded to the table's dtype, and each product to it again.
//
// ids i32 [tokens], each in [0, vocab) (checked by the caller against the vocabulary when the batch
// is made; an id outside is a Bug here on the CPU, and on a card a row of NaN without a gradient).
// table [vocab, hidden] and out [tokens, hidden] in the same dtype, f32 or bf16.
//
// The columns of a table [r, vocab] (A of an embedding's LoRA) are looked up likewise: out[t, k] =
// table[k, ids[t]], out [tokens, r].
//
// Cost: forward, the rows copied, with a factor one flop an element. Backward, one flop an element of
// out_gradient, two with a factor; the rows of the table's gradient count as read and written once for
// each token.
#pragma once

#include "garam/runtime/stream.h"

namespace garam {

void embedding_forward(Stream& stream, const Tensor& ids, const Tensor& table, const Tensor& out,
                       float factor = 1);

// table_gradient f32 [vocab, hidden] += factor * rows of `out_gradient` (f32 or bf16, the table's
// dtype, to which the factor is rounded), added in token order for each id, so that the result does
// not depend on the number of threads. Here an id of -1 stands for no row.
void embedding_backward(Stream& stream, const Tensor& ids, const Tensor& out_gradient,
                        const Tensor& table_gradient, float factor = 1);

void embedding_columns_forward(Stream& stream, const Tensor& ids, const Tensor& table,
                               const Tensor& out);

// Likewise table_gradient f32 [r, vocab]: column ids[t] += row t of `out_gradient` [tokens, r], in token order for
// each id.
void embedding_columns_backward(Stream& stream, const Tensor& ids, const Tensor& out_gradient,
                                const Tensor& table_gradient);

}  // namespace garam
