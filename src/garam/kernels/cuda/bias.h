// Bias of a linear layer on a card (ops/bias.h has the contract). Floor: y, or dy, moved once, at
// the bandwidth of the memory.
#pragma once

#include "garam/kernels/cuda/column_sums.h"

namespace garam::cuda {

constexpr std::int64_t kBiasFewestRows = 32, kBiasMostPieces = 128;
constexpr std::int64_t bias_rows_in_piece(std::int64_t rows) {
    return rows_in_piece(rows, kBiasFewestRows, kBiasMostPieces);
}
constexpr std::int64_t bias_pieces(std::int64_t rows) {
    return pieces_of(rows, bias_rows_in_piece(rows));
}
constexpr std::int64_t bias_scratch_pieces(std::int64_t rows) {
    return most_pieces_of(rows, kBiasFewestRows, kBiasMostPieces);
}

struct BiasKernels {
    void (*add)(StreamHandle stream, const void* bias, Rows y, DType dtype, std::int64_t rows,
                std::int64_t columns);
    // `partials` f32 [bias_scratch_pieces(rows), columns].
    void (*backward)(StreamHandle stream, Rows dy, DType dtype, std::int64_t rows,
                     std::int64_t columns, float* partials, float* bias_gradient);
};
const BiasKernels& bias_kernels();

}  // namespace garam::cuda
