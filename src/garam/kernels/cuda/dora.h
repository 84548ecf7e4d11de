// DoRA on a card (ops/dora.h has the contract). Floors: scaled columns move their operands once; the norms
// read the weight once, at 2 r flops each in fp32.
#pragma once

#include "garam/kernels/cuda/column_sums.h"

namespace garam::cuda {

struct DoraScaleArguments {
    Rows weight, A, B;  // A, B f32
    float scaling;
    const float* magnitude;
    float* scale;
    float* norm;
    std::int64_t out, in, rank;
};

struct ScaleColumnsArguments {
    Rows x;
    const float* factors;
    float offset;
    const void* bias;  // may be null
    Rows addend;       // data may be null
    Rows y;
    std::int64_t rows, columns;
};

struct DoraBackwardArguments {
    Rows dy, z;
    const float* scale;
    const float* norm;
    Rows dz;
    float* partials;  // f32 [dora_scratch_pieces(rows), columns]
    float* magnitude_gradient;
    std::int64_t rows, columns;
};

constexpr std::int64_t kDoraFewestRows = 32, kDoraMostPieces = 128;
constexpr std::int64_t dora_rows_in_piece(std::int64_t rows) {
    return rows_in_piece(rows, kDoraFewestRows, kDoraMostPieces);
}
constexpr std::int64_t dora_pieces(std::int64_t rows) {
    return pieces_of(rows, dora_rows_in_piece(rows));
}
constexpr std::int64_t dora_scratch_pieces(std::int64_t rows) {
    return most_pieces_of(rows, kDoraFewestRows, kDoraMostPieces);
}

// `dtype`: of the weight, and of what is scaled.
struct DoraKernels {
    void (*scale)(StreamHandle stream, const DoraScaleArguments& arguments, DType dtype);
    void (*scale_columns)(StreamHandle stream, const ScaleColumnsArguments& arguments, DType dtype);
    void (*backward)(StreamHandle stream, const DoraBackwardArguments& arguments, DType dtype);
};
const DoraKernels& dora_kernels();

}  // namespace garam::cuda
