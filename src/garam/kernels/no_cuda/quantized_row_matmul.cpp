#include "garam/kernels/cuda/quantized_row_matmul.h"

#include "garam/core/error.h"

namespace garam::cuda {

const QuantizedRowMatmulKernels& quantized_row_matmul_kernels() {
    throw Bug("this build has no CUDA");
}

}  // namespace garam::cuda
