// The token embedding, with or without a LoRA adapter as PEFT has it:
//
//   x[t] = factor * (E[id] + s * B A[:, id])
//
// E [vocab, hidden], A [r, vocab], B [hidden, r], x [tokens, hidden], all of the compute dtype; gradients f32.
// PEFT drops nothing here. A's column of a token that does not come up gets no gradient.
#pragma once

#include "garam/nn/linear.h"

namespace garam {

struct TokenEmbedding {
    Tensor table;
    Tensor table_gradient;  // f32, or empty: frozen
    // Rows that are trained for themselves: of a token its number among them or -1, i32 [vocab]; their
    // gradient, f32 [rows, hidden], or empty.
    Tensor token_places;
    Tensor token_gradient;
    std::optional<LoraAdapter> lora;
    float factor = 1;  // Gemma: sqrt(hidden), rounded to the compute dtype

    // Whether the backward has something to add to.
    bool is_trained() const {
        return static_cast<bool>(table_gradient) || static_cast<bool>(token_gradient) ||
               (lora && static_cast<bool>(lora->A_gradient));
    }
};

// ids i32 [tokens].
void token_embedding_forward(Stream& stream, const TokenEmbedding& embedding, const Tensor& ids,
                             const Tensor& x);

// Adds to the gradients of whatever is trained.
void token_embedding_backward(Stream& stream, const TokenEmbedding& embedding, const Tensor& ids,
                              const Tensor& dx);

}  // namespace garam
