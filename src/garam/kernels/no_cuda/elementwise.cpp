#include "garam/kernels/cuda/elementwise.h"

#include "garam/core/error.h"

namespace garam::cuda {

const ElementwiseKernels& elementwise_kernels() {
    throw Bug("this build has no CUDA");
}

}  // namespace garam::cuda
