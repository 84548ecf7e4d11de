#include "garam/nn/token_embedding.h"

#include "garam/ops/elementwise.h"
#include "garam/ops/embedding.h"
#include "garam/ops/matmul.h"

namespace garam {
namespace {

// s times the factor, which is of the table's dtype.
float lora_factor(const TokenEmbedding& embedding) {
    const float factor = embedding.table.dtype() == DType::bf16
                             ? static_cast<float>(bfloat16(embedding.factor))
                             : embedding.factor;
    return embedding.lora->scaling * factor;
}

// A's columns of the tokens, [tokens, r].
Tensor columns_of(Stream& stream, const TokenEmbedding& embedding, const Tensor& ids) {
    const LoraAdapter& lora = *embedding.lora;
    const Tensor u =
        stream.arena().scratch(embedding.table.dtype(), {ids.elements(), lora.A.extent(0)});
    embedding_columns_forward(stream, ids, lora.A, u);
    return u;
}

}  // namespace

void token_embedding_forward(Stream& stream, const TokenEmbedding& embedding, const Tensor& ids,
                             const Tensor& x) {
    embedding_forward(stream, ids, embedding.table, x, embedding.factor);
    if (!embedding.lora) return;
    const ScratchScope scope(stream.arena());
    const Tensor u = columns_of(stream, embedding, ids);
    matmul(stream, u, embedding.lora->B, x,
           {.transpose_b = true, .alpha = lora_factor(embedding), .accumulate = true});
}

void token_embedding_backward(Stream& stream, const TokenEmbedding& embedding, const Tensor& ids,
                              const Tensor& dx) {
    if (embedding.table_gradient)
        embedding_backward(stream, ids, dx, embedding.table_gradient, embedding.factor);
    if (embedding.token_gradient) {
        const ScratchScope scope(stream.arena());
        const std::int64_t tokens = ids.elements();
        const Tensor places = stream.arena().scratch(DType::i32, {tokens});
        gather_rows(stream, embedding.token_places.reshape({embedding.table.rows(), 1}), ids,
                    places.reshape({tokens, 1}));
        embedding_backward(stream, places, dx, embedding.token_gradient, embedding.factor);
    }
    if (!embedding.lora || !embedding.lora->A_gradient) return;
    const LoraAdapter& lora = *embedding.lora;
    const ScratchScope scope(stream.arena());
    const Tensor u = columns_of(stream, embedding, ids);
    const float factor = lora_factor(embedding);
    matmul(stream, dx, u, lora.B_gradient,
           {.transpose_a = true, .alpha = factor, .accumulate = true});
    const Tensor du = u;  // its values are done with
    matmul(stream, dx, lora.B, du, {.alpha = factor});
    embedding_columns_backward(stream, ids, du, lora.A_gradient);
}

}  // namespace garam
