// Few rows against the rows of a quantised weight, decoded on the way: c [m, n] = alpha * (a [m, k] Wᵀ + tail
// tail_weightᵀ) + addend + bias; one row may be made on the way to it (ops/row_matmul.h).
//
// Sums in fp32. Rows of bf16 against 4-bit codes are products of tensor cores: the 16 values of the table, times a
// constant that is divided out again, are rounded to bf16 (FP4's are exact, NF4's within 2^-9 of themselves, as a
// weight decoded to bf16 is), and the sum over a block's codes is multiplied by absmax in fp32. All else takes
// the weight's values as f32.
//
// Floor: codes and scales read once, at the bandwidth of the memory.
#pragma once

#include <cstdint>

#include "garam/kernels/cuda/dequantize.h"
#include "garam/kernels/cuda/quantized_row_layout.h"
#include "garam/kernels/cuda/row_matmul.h"

namespace garam::cuda {

constexpr std::int64_t kMostFusedRows = 16;

struct QuantizedRowMatmul {
    std::int64_t m = 1;  // 1 to kMostFusedRows
    RowInput input =
        RowInput::given;  // another than given: of one row, see quantized_row_matmul_makes()
    bool a_is_bf16 = true;
    Rows a;  // given: a [m, k]; else x [1, k]
    const void* weight_or_up = nullptr;
    float eps = 0;
    float weight_offset = 0;
    bool rounds_once = false;
    // [n, k]: the rows of one after those of another, of one format and block; more than one only of a made row.
    QuantizedWeight weights[quantized_row::kMostParts];
    int parts = 1;
    std::int64_t tail_columns = 0;
    Rows tail;                   // [m, tail_columns] of a's dtype
    Rows tail_weight;            // [n, tail_columns] of a's dtype
    Rows addend;                 // no data: none; of c's dtype, and so is bias
    const void* bias = nullptr;  // nullptr: none
    Rows c;
    bool c_is_bf16 = false;
    bool weight_is_settled =
        false;  // by no work that may still run when this begins; a norm's, too
    float alpha = 1;
    std::int64_t shared_bytes = 0;  // that a block may have
};

// Whether it makes its row of k elements itself; addresses must be multiples of 16 bytes. By sizes only.
inline bool quantized_row_matmul_makes(RowInput input, const QuantizedWeight& weight) {
    return quantized_row::takes_weight(weight) &&
           (input != RowInput::rms_norm || weight.columns <= kRowMostNormed) &&
           quantized_row::most_bytes(1, weight.columns,
                                     quantized_row::runs_of(weight.columns, weight.block_shift)) <=
               quantized_row::kMostShared;
}

struct QuantizedRowMatmulKernels {
    void (*multiply)(StreamHandle stream, const QuantizedRowMatmul& work);
};
const QuantizedRowMatmulKernels& quantized_row_matmul_kernels();

// Its piece for other formats, dtypes, shapes and addresses, for given rows and one weight only.
void quantized_rows_plain(StreamHandle stream, const QuantizedRowMatmul& work);

}  // namespace garam::cuda
