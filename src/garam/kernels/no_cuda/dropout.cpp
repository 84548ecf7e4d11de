#include "garam/kernels/cuda/dropout.h"

#include "garam/core/error.h"

namespace garam::cuda {

const DropoutKernels& dropout_kernels() {
    throw Bug("this build has no CUDA");
}

}  // namespace garam::cuda
