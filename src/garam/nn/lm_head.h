// The head of a language model: final norm, product with the output embedding, scale of the logits, loss -
// only for the rows that have a target, in chunks of rows, so that logits are never whole. With a LoRA adapter
// the product is that of nn/linear.h, logits = h Wᵀ + s dropout(h) Aᵀ Bᵀ, by two products: the weight may be
// the embedding's own, which has no room for an adapter beside it.
#pragma once

#include "garam/nn/linear.h"
#include "garam/nn/loss.h"
#include "garam/nn/norm.h"

namespace garam {

struct LmHead {
    RmsNorm norm;
    Tensor weight;           // [vocab, hidden]; the token embedding itself when tied
    Tensor weight_gradient;  // f32, or empty
    // Rows of the weight that are trained for themselves: their tokens, i32 [rows], and f32 [rows, hidden].
    Tensor token_ids;
    Tensor token_gradient;
    std::optional<LoraAdapter> lora;
    LogitScale scale;
};

// Rows of logits that are in memory at a time: a chunk of about 16 MiB keeps to a processor's cache and is
// large enough for its matrix product (four times that where products are by tiles, so fast that packing
// the weights would take as long); a card needs more rows to be filled, 512 within 512 MiB: then reading the
// weights takes less than multiplying. A pass in tiles has no more rows than a tile.
std::int64_t logits_chunk_rows(const DeviceProfile& profile, std::int64_t vocab, std::int64_t rows,
                               std::int64_t tile = 0);

// x [tokens, hidden]; target_rows i32 [rows] ascending, targets i32 [rows]. Adds the sum of the rows'
// losses to loss_sum f32 [1], writes single losses to `losses` f32 [rows]. Unless dx is empty, adds to
// the gradients and writes dx [tokens, hidden] (zero in rows without a target). `dropout` is of the adapter:
// its positions and samples are those of x.
void lm_head_loss(Stream& stream, const LmHead& head, const Loss& loss, const Tensor& x,
                  const Tensor& target_rows, const Tensor& targets, const Tensor& losses,
                  const Tensor& loss_sum, const Tensor& dx, const DropoutContext& dropout = {},
                  std::int64_t tile = 0);

// logits f32 [rows, vocab] of the rows named.
void lm_head_logits(Stream& stream, const LmHead& head, const Tensor& x, const Tensor& rows,
                    const Tensor& logits);

}  // namespace garam
