// Products with a quantised weight W [out, in], decoded on the way, never as a whole:
//
//   forward   c [m, out] = a Wᵀ (+ addend + bias)    transpose_b
//   backward  c [m, in]  = a W                       no transpose
//
// The contract, options (accumulate, addend, bias, b_is_settled) and sums are those of matmul() with the matrix
// decoded to a's dtype: on the CPU the same bits, for any number of rows. a and c of f32 or bf16.
//
// On the CPU a tile of W is decoded into the product's packed columns. On a card few rows (kMostFusedRows) go by
// a kernel that decodes in registers; more are refused there: decode first (ops/dequantize.h), once for all
// that reads the matrix.
//
// Cost: matmul's, one flop more an element of W; codes and scales moved once.
//
// Scratch: on the CPU matmul's and a constant (some 40 KB) for each thread; on a card none.
#pragma once

#include "garam/ops/matmul.h"
#include "garam/quant/quantized_matrix.h"

namespace garam {

void quantized_matmul(Stream& stream, const Tensor& a, const QuantizedMatrix& weight,
                      const Tensor& c, const MatmulOptions& options);

}  // namespace garam
