// Matrix products on a card: cuBLASLt, kernels of our own for few rows (gemv.cu), and a plain kernel for
// the rest (no terms at all; operands for which the library has no algorithm).
#pragma once

#include "garam/kernels/cuda/launch.h"

namespace garam::cuda {

// Scratch of every product that has terms: what the library may use, as the plan counts it.
constexpr std::int64_t kMatmulWorkspace = std::int64_t{32} << 20;

// c = alpha * op(a) * op(b) + addend + bias, see ops/matmul.h. None of the extents m and n is 0.
struct MatmulArguments {
    std::int64_t m = 0, n = 0, k = 0;
    Rows a, b, c;
    Rows addend;                 // no data: none; c itself: accumulate
    const void* bias = nullptr;  // nullptr: none
    bool transpose_a = false, transpose_b = false;
    bool inputs_are_bf16 = false, c_is_bf16 = false;
    bool b_is_settled = false;  // by no work that may still run when this begins
    bool tf32 = false;          // f32 operands may be multiplied in tf32
    float alpha = 1;
    int ordinal = 0;  // of the card
    void* workspace = nullptr;
};

struct MatmulKernels {
    void (*multiply)(StreamHandle stream, const MatmulArguments& arguments);
};
const MatmulKernels& matmul_kernels();

// The pieces of multiply().
bool gemv(StreamHandle stream, const MatmulArguments& arguments);  // false: not of its shapes
void plain_matmul(StreamHandle stream, const MatmulArguments& arguments);

}  // namespace garam::cuda
