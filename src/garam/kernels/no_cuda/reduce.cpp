#include "garam/kernels/cuda/reduce.h"

#include "garam/core/error.h"

namespace garam::cuda {

const ReduceKernels& reduce_kernels() {
    throw Bug("this build has no CUDA");
}

}  // namespace garam::cuda
