// Values of a quantised matrix, and quantising on the device.
//
// dequantize: out [n, columns] (f32 or bf16, may have a pitch) = rows [first_row, first_row + n) of the matrix,
// bit for bit what quant/ gives on the host, on every device.
// quantize: codes and scales of a 4-bit matrix from dense values [rows, columns] (f32 or bf16), bit for bit those
// of quant/four_bit.h and so of bitsandbytes. On a card codes are those of bitsandbytes' CUDA kernel: of nf4 the same
// for values of bf16, and in about one of 10^7 of f32 the neighbour's, beside a midpoint; fp4's differ beside
// midpoints and in the sign of zeros. On the CPU a value that is NaN or infinite is an Error; on a card it makes the
// absmax of its block, and the offset of double quantisation, so. On a card double quantisation takes scratch.
//
// Cost: one flop an element; codes, scales and values moved once.
#pragma once

#include "garam/quant/quantized_matrix.h"
#include "garam/runtime/stream.h"

namespace garam {

void dequantize(Stream& stream, const QuantizedMatrix& matrix, std::int64_t first_row,
                const Tensor& out);

void quantize(Stream& stream, const Tensor& values, const QuantizedMatrix& matrix);

}  // namespace garam
