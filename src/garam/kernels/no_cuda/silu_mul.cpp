#include "garam/kernels/cuda/silu_mul.h"

#include "garam/core/error.h"

namespace garam::cuda {

const SiluMulKernels& silu_mul_kernels() {
    throw Bug("this build has no CUDA");
}

}  // namespace garam::cuda
