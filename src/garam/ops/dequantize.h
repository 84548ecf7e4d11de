// Values of a quantised matrix, and quantising on the device.
//
// dequantize: out [n, columns] (f32 or bf16, may have a pitch) = rows [first_row, first_row + n) of the matrix,
// bit for bit what quant/ gives on the host, on every device.
// quantize: codes and scales of a 4-bit matrix from dense values [rows, columns] (f32 or bf16), bit for bit those
// of quant/four_bit.h and so of bitsandbytes; fp4's on a card are those of bitsandbytes' CUDA kernel, which differ
// beside midpoints and in the sign of zeros. On the CPU a value that is NaN or infinite is an Error. On a card
// double quantisation takes scratch of the arena.
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
