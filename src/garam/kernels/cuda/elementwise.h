// Casts, sums and moves of rows on a card (ops/elementwise.h has the contracts). Floor: every
// operand moved once, at the bandwidth of the memory.
#pragma once

#include "garam/kernels/cuda/launch.h"

namespace garam::cuda {

// One small matrix of cast_many: f32, dense, to f32 or bf16 rows.
struct CastMatrix {
    const float* from = nullptr;
    void* to = nullptr;
    std::int64_t rows = 0, columns = 0, to_pitch = 0;
    DType to_dtype = DType::f32;
    float factor = 1;
};

// Rows picked by number. Pitches, and the length of a row, in bytes.
struct PickedRows {
    const void* x = nullptr;
    std::int64_t x_pitch = 0, x_rows = 0;
    const std::int32_t* rows = nullptr;  // as many as the shorter side has
    void* out = nullptr;
    std::int64_t out_pitch = 0, out_rows = 0;
    std::int64_t row_bytes = 0;
};

struct ElementwiseKernels {
    // Between f32, f16 and bf16. Of equal dtypes call copy().
    void (*cast)(StreamHandle stream, Rows x, DType from, Rows out, DType to, std::int64_t rows,
                 std::int64_t columns);
    // Rows of bytes: pitches and columns in bytes.
    void (*copy)(StreamHandle stream, Rows x, Rows out, std::int64_t rows, std::int64_t row_bytes);
    // From f32 to f32 or bf16, or from bf16 to bf16.
    void (*scale)(StreamHandle stream, Rows x, DType from, float factor, Rows out, DType to,
                  std::int64_t rows, std::int64_t columns);
    void (*add)(StreamHandle stream, Rows a, Rows b, Rows out, DType dtype, std::int64_t rows,
                std::int64_t columns);
    void (*fill)(StreamHandle stream, float value, Rows out, DType dtype, std::int64_t rows,
                 std::int64_t columns);
    // As few launches as arguments of 4 KB allow: some 80 matrices each.
    void (*cast_many)(StreamHandle stream, const CastMatrix* matrices, std::int64_t count);

    // One row of out for each of `rows`: -1 gives zeros, another number outside x NaN.
    void (*gather_rows)(StreamHandle stream, const PickedRows& work);
    // All rows of out in one pass, each looked up among `rows` (ascending, then -1).
    void (*scatter_rows)(StreamHandle stream, const PickedRows& work);
    // Numbers outside out are skipped.
    void (*store_rows)(StreamHandle stream, const PickedRows& work);
};
const ElementwiseKernels& elementwise_kernels();

}  // namespace garam::cuda
