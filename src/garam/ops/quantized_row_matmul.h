// ops/row_matmul.h with quantised weights b [n, columns of x] (quant/quantized_matrix.h):
//
//   c = alpha (made bᵀ + tail tail_weightᵀ) + addend + bias
//
// b is one matrix or up to kMostStacked, the rows of one after those of another (query, key and value of one input).
// `tail` [rows, t] and `tail_weight` [n, t] of x's dtype are an adapter's, and come together or not at all. One row of
// bf16 with nf4 or fp4 codes is one kernel on a card (kernels/cuda/quantized_row_matmul.h has its rounding); all else
// is composed of the ops, with scratch for the operand, and on a card is for few rows only, as quantized_matmul() is.
//
// Cost: the sum of the ops', without the operand between.
#pragma once

#include <span>

#include "garam/ops/row_matmul.h"
#include "garam/quant/quantized_matrix.h"

namespace garam {

constexpr std::size_t kMostStacked = 3;

void rms_norm_matmul(Stream& stream, const Tensor& x, const Tensor& weight, float eps,
                     std::span<const QuantizedMatrix> b, const Tensor& c,
                     const RowMatmulOptions& options = {}, const RmsNormOptions& norm = {});

void gated_activation_matmul(Stream& stream, Activation activation, const Tensor& gate,
                             const Tensor& up, std::span<const QuantizedMatrix> b, const Tensor& c,
                             const RowMatmulOptions& options = {});

}  // namespace garam
