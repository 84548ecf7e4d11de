#include "garam/kernels/cuda/gated_activation.h"

#include "garam/core/error.h"

namespace garam::cuda {

const GatedActivationKernels& gated_activation_kernels() {
    throw Bug("this build has no CUDA");
}

}  // namespace garam::cuda
