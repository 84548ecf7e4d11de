// Matrix product: c = alpha * op(a) * op(b) + (accumulate ? c : 0), op(x) = x or its transpose.
//
// op(a) [m, k], op(b) [k, n], c [m, n]; a and b of one dtype (f32 or bf16), c f32 or bf16 (with f32
// inputs, f32); rows may have a pitch. Sums in fp32, rounded once into c. The result is the same bits
// for the same shapes on the same processor and number of threads. m, n or k of 0 is allowed.
//
// Cost: 2 m n k flops; every operand moved once, c read when accumulating.
#pragma once

#include "garam/runtime/stream.h"

namespace garam {

struct MatmulOptions {
    bool transpose_a = false;
    bool transpose_b = false;
    float alpha = 1;
    bool accumulate = false;
};

void matmul(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& c,
            const MatmulOptions& options = {});

}  // namespace garam
