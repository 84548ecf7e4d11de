#include "garam/kernels/cuda/norm.h"

#include "garam/core/error.h"

namespace garam::cuda {

const NormKernels& norm_kernels() {
    throw Bug("this build has no CUDA");
}

}  // namespace garam::cuda
