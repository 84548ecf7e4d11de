#include "garam/kernels/cuda/dequantize.h"

#include "garam/core/error.h"

namespace garam::cuda {

const DequantizeKernels& dequantize_kernels() {
    throw Bug("this build has no CUDA");
}

}  // namespace garam::cuda
