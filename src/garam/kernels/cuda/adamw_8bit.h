// AdamW on states of 8 bits (ops/adamw_8bit.h) on a card: a warp a block of 256 elements, one
// launch for some hundred tensors. Floor: 16 bytes an element moved. Every operation is rounded by
// itself, as on the processor. The factor on gradients lies on the card; NaN: nothing is updated.
#pragma once

#include "garam/kernels/cuda/launch.h"

namespace garam::cuda {

struct AdamW8bitStep {
    float decay;  // 1 - learning_rate * weight_decay
    float beta1, beta2;
    float one_minus_beta1, one_minus_beta2;
    float step_size;  // -learning_rate * sqrt(1 - beta2^t) / (1 - beta1^t)
    float epsilon;    // times sqrt(1 - beta2^t)
};

// A tensor, or the blocks of one; its states begin at `block`.
struct AdamW8bitPart {
    float* weight;
    const float* gradient;
    std::int64_t elements;
    std::int64_t block;
};

struct AdamW8bitStates {
    std::uint8_t* m_codes;  // aligned to 4 bytes, as v's
    std::uint8_t* v_codes;
    float* m_absmax;
    float* v_absmax;
};

struct AdamW8bitKernels {
    // Parts in the order of their blocks, which are all of the `blocks`.
    void (*step)(StreamHandle stream, const AdamW8bitStep& step, const float* gradient_scale,
                 const AdamW8bitPart* parts, std::int64_t count, const AdamW8bitStates& states,
                 std::int64_t blocks);
};
const AdamW8bitKernels& adamw_8bit_kernels();

}  // namespace garam::cuda
