// Quantised matrices (quant/quantized_matrix.h) in device memory: their values, and 4-bit codes of values.
// ops/dequantize.h has the contracts; bits are those of quant/ on the host. Addresses may be of any alignment
// that their types allow; the fast ways take those of 16 bytes (codes of 4).
//
// Floor: codes, scales and values moved once, at the bandwidth of the memory.
#pragma once

#include <cstdint>

#include "garam/core/quant_format.h"
#include "garam/kernels/cuda/launch.h"

namespace garam::cuda {

// [rows, columns]. Tables are host memory, read before the call returns.
struct QuantizedWeight {
    QuantFormat format = QuantFormat::nf4;
    std::int64_t rows = 0, columns = 0;
    const void* codes = nullptr;

    // Of nf4 and fp4.
    const float* table = nullptr;          // 16 values
    int block_shift = 6;                   // log2 of the elements of a block, 5 or more
    int nested_shift = 8;                  // log2 of the blocks of a nested block
    const void* absmax = nullptr;          // f32, u8 with double quantisation
    const float* nested_absmax = nullptr;  // nullptr: not double
    const float* offset = nullptr;
    const float* map = nullptr;  // 256 values of the dynamic map, of double quantisation
};

// out [rows, columns of weight] = rows [first_row, first_row + rows) of the weight.
struct Dequantize {
    QuantizedWeight weight;
    std::int64_t first_row = 0, rows = 0;
    Rows out;
    bool out_is_bf16 = false;
};

constexpr std::int64_t kSummedElements = 8192;  // whose absmax are added up first

// Codes of dense values as bitsandbytes' CUDA kernel finds them, with y = x / absmax by an
// approximate reciprocal: NF4's is the number of the 15 thresholds below y, FP4's of the 7 below
// |y|, renumbered to the type's bit patterns, and 8 more where y < 0. By a unit of the reciprocal
// no code of NF4 changes that is of bf16 values, and about one in 10^7 of f32. A value that is NaN
// or infinite makes the absmax of its block so, and with double quantisation the offset.
struct Quantize {
    const void* values = nullptr;  // dense, f32 or bf16
    bool values_are_bf16 = false;
    std::int64_t elements = 0;
    bool is_fp4 = false;
    const float* thresholds = nullptr;  // host: 15, rising; of fp4 7
    int block_shift = 6;
    void* codes = nullptr;
    float* absmax = nullptr;  // [blocks]; with double quantisation scratch

    // Of double quantisation. The mean is of f64 sums, added in the host's order.
    std::uint8_t* absmax_codes = nullptr;  // [blocks]; nullptr: not double
    int nested_shift = 8;
    float* nested_absmax = nullptr;
    float* offset = nullptr;     // [1]
    const float* map = nullptr;  // host: 256 values, rising
    double* sums = nullptr;      // scratch: one for each kSummedElements, or less at the end
};

struct DequantizeKernels {
    void (*dequantize)(StreamHandle stream, const Dequantize& work);
    void (*quantize)(StreamHandle stream, const Quantize& work);
};
const DequantizeKernels& dequantize_kernels();

void quantize(StreamHandle stream, const Quantize& work);  // of that table

}  // namespace garam::cuda
