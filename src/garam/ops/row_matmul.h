// Products whose left operand is made on the way to them. As two ops in a row,
//
//   rms_norm_matmul           c = alpha [rms_norm_forward(x, weight, eps) | tail] bᵀ + addend + bias
//   gated_activation_matmul   c = alpha [gated_activation_forward(gate, up) | tail] bᵀ + addend + bias
//
// with the same roundings between. `tail` [rows, k - columns of x] (empty: no columns) are columns that exist
// already. b [n, k], c [rows, n]; x, weight, gate, up, tail and b of one dtype; bias, addend and c as in
// ops/matmul.h. One row of bf16 is one kernel on a card, as decoding needs it: each of its blocks makes
// the row for itself. All else is composed of the ops, with scratch for the operand.
//
// b and weight are settled (ops/matmul.h): a card may begin to read them while the work ahead still runs.
//
// Cost: the sum of the two ops', without the operand between.
#pragma once

#include "garam/core/activation.h"
#include "garam/ops/rms_norm.h"

namespace garam {

struct RowMatmulOptions {
    Tensor tail = {};
    Tensor tail_weight = {};  // with a quantised b only (ops/quantized_row_matmul.h)
    Tensor addend = {};
    Tensor bias = {};
    float alpha = 1;
};

void rms_norm_matmul(Stream& stream, const Tensor& x, const Tensor& weight, float eps,
                     const Tensor& b, const Tensor& c, const RowMatmulOptions& options = {},
                     const RmsNormOptions& norm = {});

void gated_activation_matmul(Stream& stream, Activation activation, const Tensor& gate,
                             const Tensor& up, const Tensor& b, const Tensor& c,
                             const RowMatmulOptions& options = {});

}  // namespace garam
