// Token embedding on a card (ops/embedding.h has the contract; an id outside the vocabulary gives a
// row of NaN, and its gradient is dropped).
//
// Floor: rows copied at the bandwidth of the memory. The backward sorts the tokens by (id, token)
// by counting for each how many come before it, tokens^2 comparisons: some 5 us for 8192 tokens,
// below the time of their rows.
#pragma once

#include "garam/kernels/cuda/launch.h"

namespace garam::cuda {

struct EmbeddingKernels {
    void (*forward)(StreamHandle stream, const std::int32_t* ids, Rows table, Rows out,
                    float factor, DType dtype, std::int64_t tokens, std::int64_t vocab,
                    std::int64_t hidden);
    // `order` i32 [tokens], scratch.
    void (*backward)(StreamHandle stream, const std::int32_t* ids, Rows out_gradient, DType dtype,
                     float factor, Rows table_gradient, std::int64_t tokens, std::int64_t vocab,
                     std::int64_t hidden, std::int32_t* order);
    // Columns of a table [rank, vocab].
    void (*columns_forward)(StreamHandle stream, const std::int32_t* ids, Rows table, Rows out,
                            DType dtype, std::int64_t tokens, std::int64_t vocab,
                            std::int64_t rank);
    void (*columns_backward)(StreamHandle stream, const std::int32_t* ids, Rows out_gradient,
                             DType dtype, Rows table_gradient, std::int64_t tokens,
                             std::int64_t vocab, std::int64_t rank, std::int32_t* order);
};
const EmbeddingKernels& embedding_kernels();

}  // namespace garam::cuda
