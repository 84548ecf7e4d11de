// Root-mean-square norm on a card (ops/rms_norm.h has the contract).
//
// Floor: forward x read and y written once; backward dy and x (and dx when accumulating) read and
// dx written once, at the bandwidth of the memory. Rows of up to 16 KB (8192 bf16 entries) stay in
// registers between the sum and the result; longer ones, and those that 16 bytes do not divide, are
// read twice, the second time from the caches. A weight's gradient adds its partial sums, f32,
// written and read once.
#pragma once

#include "garam/kernels/cuda/column_sums.h"

namespace garam::cuda {

constexpr std::int64_t kNormFewestRows = 4, kNormMostPieces = 512;
constexpr std::int64_t norm_rows_in_piece(std::int64_t rows) {
    return rows_in_piece(rows, kNormFewestRows, kNormMostPieces);
}
constexpr std::int64_t norm_pieces(std::int64_t rows) {
    return pieces_of(rows, norm_rows_in_piece(rows));
}
constexpr std::int64_t norm_scratch_pieces(std::int64_t rows) {
    return most_pieces_of(rows, kNormFewestRows, kNormMostPieces);
}

// What a norm multiplies by: offset + data[i].
struct NormWeight {
    const void* data = nullptr;
    float offset = 0;
    bool rounds_once = false;  // else the normed value is rounded before the product
};

// `rows` norms of `hidden` elements, `heads` of them beside each other in each row of the operands.
struct NormForward {
    DType dtype = DType::f32;
    Rows x, y;
    NormWeight weight;
    float eps = 0;
    float* rstd = nullptr;  // may be null
    std::int64_t rows = 0;
    int heads = 1;
    int hidden = 0;
};

struct NormBackward {
    DType dtype = DType::f32;
    Rows dy, x, dx;
    NormWeight weight;
    const float* rstd = nullptr;
    bool accumulate = false;
    std::int64_t rows = 0;
    int heads = 1;
    int hidden = 0;
    // Both null: the weight is frozen. partials f32 [norm_scratch_pieces(rows), hidden].
    float* partials = nullptr;
    float* weight_gradient = nullptr;
};

struct NormKernels {
    void (*forward)(StreamHandle stream, const NormForward& work);
    void (*backward)(StreamHandle stream, const NormBackward& work);
};
const NormKernels& norm_kernels();

}  // namespace garam::cuda
