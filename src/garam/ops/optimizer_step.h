// One update of one parameter tensor. All f32 and dense, same shape; in place. The gradient is
// multiplied by `gradient_scale` f32 [1] (ops/gradient_scale.h) while it is read; where that is NaN,
// nothing is changed.
//
// Cost an element: AdamW 15 flops; SGD 5, with momentum 3 more after the first step, Nesterov 2
// more. Every vector moved once; the first step does not read the momentum buffer.
#pragma once

#include "garam/runtime/stream.h"

namespace garam {

// Decoupled weight decay (Loshchilov and Hutter, 2019), as torch.optim.AdamW computes it:
//   w -= lr * weight_decay * w;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   w -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)       (t counts from 1)
struct AdamWOptions {
    double learning_rate = 0;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0;
    std::int64_t step = 1;  // t
};

void adamw_step(Stream& stream, const AdamWOptions& options, const Tensor& weight,
                const Tensor& gradient, const Tensor& gradient_scale, const Tensor& m,
                const Tensor& v);

// torch.optim.SGD:
//   g += weight_decay * w;  buffer = t == 1 ? g : momentum * buffer + (1 - dampening) g
//   w -= lr * (nesterov ? g + momentum * buffer : buffer)
// Without momentum `buffer` is an empty Tensor.
struct SgdOptions {
    double learning_rate = 0;
    double momentum = 0;
    double dampening = 0;
    bool nesterov = false;
    double weight_decay = 0;
    std::int64_t step = 1;
};

void sgd_step(Stream& stream, const SgdOptions& options, const Tensor& weight,
              const Tensor& gradient, const Tensor& gradient_scale, const Tensor& buffer);

}  // namespace garam
