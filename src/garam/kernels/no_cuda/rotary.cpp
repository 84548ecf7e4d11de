#include "garam/kernels/cuda/rotary.h"

#include "garam/core/error.h"

namespace garam::cuda {

const RotaryKernels& rotary_kernels() {
    throw Bug("this build has no CUDA");
}

}  // namespace garam::cuda
