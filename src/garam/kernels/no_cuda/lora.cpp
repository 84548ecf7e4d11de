#include "garam/kernels/cuda/lora.h"

#include "garam/core/error.h"

namespace garam::cuda {

const LoraKernels& lora_kernels() {
    throw Bug("this build has no CUDA");
}

}  // namespace garam::cuda
