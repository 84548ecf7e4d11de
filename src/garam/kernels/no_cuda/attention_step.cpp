#include "garam/kernels/cuda/attention_step.h"

#include "garam/core/error.h"

namespace garam::cuda {

const AttentionStepKernels& attention_step_kernels() {
    throw Bug("this build has no CUDA");
}

}  // namespace garam::cuda
