#include "garam/kernels/cuda/adamw_8bit.h"

#include "garam/core/error.h"

namespace garam::cuda {

const AdamW8bitKernels& adamw_8bit_kernels() {
    throw Bug("this build has no CUDA");
}

}  // namespace garam::cuda
