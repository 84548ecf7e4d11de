// The gated activation on a card (ops/gated_activation.h has the contract). Floor: every operand moved
// once, at the bandwidth of the memory.
#pragma once

#include "garam/core/activation.h"
#include "garam/kernels/cuda/launch.h"

namespace garam::cuda {

struct GatedActivationKernels {
    void (*forward)(StreamHandle stream, Activation activation, Rows gate, Rows up, Rows out,
                    DType dtype, std::int64_t rows, std::int64_t ffn);
    // The gradients may be the memory of gate and up.
    void (*backward)(StreamHandle stream, Activation activation, Rows out_gradient, Rows gate,
                     Rows up, Rows gate_gradient, Rows up_gradient, DType dtype, std::int64_t rows,
                     std::int64_t ffn);
};
const GatedActivationKernels& gated_activation_kernels();

}  // namespace garam::cuda
