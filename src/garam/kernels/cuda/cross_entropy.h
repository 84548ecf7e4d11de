// Softmax cross-entropy of rows on a card (ops/cross_entropy.h has the contract).
//
// One block a row, two passes: a running maximum and sum of exponentials over the row, then, last
// part first, the gradient. The last part stays in shared memory meanwhile; what the second pass
// reads before it is mostly still in the L2 cache. Floor: logits read once, gradient written once,
// at the bandwidth of the memory.
#pragma once

#include "garam/kernels/cuda/launch.h"

namespace garam::cuda {

// Logits count as logit * factor, and under a soft cap (0: none) as softcap * tanh of that / softcap.
struct LogitScale {
    float factor = 1;
    float softcap = 0;
};

struct CrossEntropy {
    Rows logits;  // f32 or bf16
    LogitScale scale;
    float smoothing = 0;  // of the target distribution, spread over all of the vocabulary
    const std::int32_t* targets = nullptr;
    float* losses = nullptr;
    Rows gradient;  // data null: none
    std::int64_t rows = 0, vocab = 0;
    DType logits_dtype = DType::f32, gradient_dtype = DType::f32;
    std::int64_t shared_bytes = 0;  // that a block may have
};

struct CrossEntropyKernels {
    // A target of -1 gives a loss of 0 and a row of zeros, another one outside the vocabulary NaN.
    void (*run)(StreamHandle stream, const CrossEntropy& work);
    // In place.
    void (*scale_logits)(StreamHandle stream, Rows logits, LogitScale scale, DType dtype,
                         std::int64_t rows, std::int64_t vocab);
};
const CrossEntropyKernels& cross_entropy_kernels();

}  // namespace garam::cuda
