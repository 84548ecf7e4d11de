#include "garam/kernels/cuda/matmul.h"

#include "garam/core/error.h"

namespace garam::cuda {

const MatmulKernels& matmul_kernels() {
    throw Bug("this build has no CUDA");
}

}  // namespace garam::cuda
