// Updates of a flat vector of parameters on a card, one launch for any length. Floor: AdamW reads
// four vectors and writes three (28 bytes an element), SGD two to three and one to two. Their factor
// on the gradients lies on the card; NaN: nothing is updated.
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
};

struct SgdStep {
    float learning_rate, momentum, one_minus_dampening, weight_decay;
    bool nesterov, first;
};

struct OptimizerKernels {
    void (*adamw)(StreamHandle stream, const AdamWStep& step, const float* gradient_scale,
                  float* weight, const float* gradient, float* m, float* v, std::int64_t n);
    // `buffer` null: no momentum. The first step does not read it.
    void (*sgd)(StreamHandle stream, const SgdStep& step, const float* gradient_scale,
                float* weight, const float* gradient, float* buffer, std::int64_t n);
    // ops/gradient_scale.h
    void (*gradient_scale)(StreamHandle stream, const float* loss_sum, const float* norm_squared,
                           double targets, double max_norm, float* scale);
};
const OptimizerKernels& optimizer_kernels();

}  // namespace garam::cuda
