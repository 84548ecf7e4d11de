#include "garam/kernels/cuda/attention.h"

#include "garam/core/error.h"

namespace garam::cuda {

const AttentionKernels& attention_kernels() {
    throw Bug("this build has no CUDA");
}

}  // namespace garam::cuda
