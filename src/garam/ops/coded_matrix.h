// A quantised matrix as the kernels see it, and what ops check of one.
#pragma once

#include "garam/kernels/cpu/kernel_table.h"
#include "garam/kernels/cuda/dequantize.h"
#include "garam/quant/quantized_matrix.h"
#include "garam/runtime/stream.h"

namespace garam {

// That its tensors lie on the stream's device and agree with its shape.
void check_quantized(const Stream& stream, const char* op, const QuantizedMatrix& matrix);

// Codes and scales of so many of its rows, in bytes.
double quantized_bytes(const QuantizedMatrix& matrix, std::int64_t rows);

// In host memory.
cpu::CodedMatrix coded_matrix(const QuantizedMatrix& matrix);
// On a card.
cuda::QuantizedWeight quantized_weight(const QuantizedMatrix& matrix);

}  // namespace garam
