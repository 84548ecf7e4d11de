// The gated activation on a card (ops/silu_mul.h has the contract). Floor: every operand moved
// once, at the bandwidth of the memory.
#pragma once

#include "garam/kernels/cuda/launch.h"

namespace garam::cuda {

struct SiluMulKernels {
    void (*forward)(StreamHandle stream, Rows gate, Rows up, Rows out, DType dtype,
                    std::int64_t rows, std::int64_t ffn);
    // The gradients may be the memory of gate and up.
    void (*backward)(StreamHandle stream, Rows out_gradient, Rows gate, Rows up, Rows gate_gradient,
                     Rows up_gradient, DType dtype, std::int64_t rows, std::int64_t ffn);
};
const SiluMulKernels& silu_mul_kernels();

}  // namespace garam::cuda
