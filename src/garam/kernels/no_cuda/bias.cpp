#include "garam/kernels/cuda/bias.h"

#include "garam/core/error.h"

namespace garam::cuda {

const BiasKernels& bias_kernels() {
    throw Bug("this build has no CUDA");
}

}  // namespace garam::cuda
