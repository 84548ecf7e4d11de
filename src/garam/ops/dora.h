// Weight-decomposed adapters (DoRA: Liu et al., 2024). A linear's weight is V = W + s B A with each row
// brought to the length that a trained magnitude m [out] says:
//
//   y = d Vᵀ diag(c) + (x - d) Wᵀ + b,   c = m / n,  n[o] = ‖V[o]‖₂,  d = dropout(x)
//
// As in PEFT n counts as a constant in the backward, and what dropout takes away goes through W alone.
// With z = d Vᵀ: dz = c ⊙ dy and dm[o] = sum over tokens of dy[o] z[o] / n[o].
#pragma once

#include "garam/runtime/stream.h"

namespace garam {

// One linear's: W [out, in] of the compute dtype, as the product reads it; the rest f32: A [r, in] and B
// [out, r], the masters; the others [out]. A row of zeros has c = 1/n = 0: it stays one.
struct DoraScale {
    Tensor weight, A, B;
    float scaling = 1;
    Tensor magnitude;
    Tensor scale;  // c
    Tensor norm;   // n
};

// Makes scale and norm from the others: once after each update of A, B or m, since it forms V row by
// row, 2 (r + 1) flops a weight. (The expanded ‖W‖² + 2 s (W Aᵀ) B + s² B A Aᵀ Bᵀ costs as much for W Aᵀ
// and cancels where the adapter takes most of a row away.)
void dora_scale(Stream& stream, const DoraScale& dora);

// y = x ⊙ (factors + offset) + bias + addend, of one dtype (f32 or bf16), rounded once; factors f32
// [columns]; bias [columns] and addend [rows, columns] may be empty. y may be x's or addend's memory.
// Cost: 1 flop an element, and 1 for offset, bias and addend each.
void scale_columns(Stream& stream, const Tensor& x, const Tensor& factors, float offset,
                   const Tensor& bias, const Tensor& addend, const Tensor& y);

// dz = scale ⊙ dy, and magnitude_gradient f32 [out] += column sums of dy ⊙ z over norm, in a fixed
// order. dy, z, dz [tokens, out] of one dtype; dz may be dy's or z's memory. Cost: 3 flops an
// element.
void dora_backward(Stream& stream, const Tensor& dy, const Tensor& z, const Tensor& scale,
                   const Tensor& norm, const Tensor& dz, const Tensor& magnitude_gradient);

}  // namespace garam
