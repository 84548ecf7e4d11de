#include "garam/kernels/cuda/dora.h"

#include "garam/core/error.h"

namespace garam::cuda {

const DoraKernels& dora_kernels() {
    throw Bug("this build has no CUDA");
}

}  // namespace garam::cuda
