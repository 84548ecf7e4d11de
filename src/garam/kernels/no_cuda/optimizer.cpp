#include "garam/kernels/cuda/optimizer.h"

#include "garam/core/error.h"

namespace garam::cuda {

const OptimizerKernels& optimizer_kernels() {
    throw Bug("this build has no CUDA");
}

}  // namespace garam::cuda
