// Updates of a flat vector of parameters on a card, one launch for any length. Floor: AdamW reads
// four vectors and writes three (28 bytes an element), SGD two to three and one to two.
#pragma once

#include "garam/kernels/cuda/launch.h"

namespace garam::cuda {

struct AdamWStep {
    float decay;  // 1 - learning_rate * weight_decay
    float beta1, beta2;
    float one_minus_beta1, one_minus_beta2;
    float step_size;        // learning_rate / (1 - beta1^t)
    float root_correction;  // sqrt(1 - beta2^t)
    float epsilon;
    float gradient_scale;
};

struct SgdStep {
    float learning_rate, momentum, one_minus_dampening, weight_decay, gradient_scale;
    bool nesterov, first;
};

struct OptimizerKernels {
    void (*adamw)(StreamHandle stream, const AdamWStep& step, float* weight, const float* gradient,
                  float* m, float* v, std::int64_t n);
    // `buffer` null: no momentum. The first step does not read it.
    void (*sgd)(StreamHandle stream, const SgdStep& step, float* weight, const float* gradient,
                float* buffer, std::int64_t n);
};
const OptimizerKernels& optimizer_kernels();

}  // namespace garam::cuda
