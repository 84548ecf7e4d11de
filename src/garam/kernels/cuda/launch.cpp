#include "garam/kernels/cuda/launch.h"

#include <cuda_runtime_api.h>

#include "garam/core/error.h"

namespace garam::cuda {

void check_launch(const char* kernel) {
    const cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess)
        throw Bug(std::string("launch of ") + kernel + ": " + cudaGetErrorString(status));
}

}  // namespace garam::cuda
