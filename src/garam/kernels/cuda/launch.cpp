#include "garam/kernels/cuda/launch.h"

#include <cuda_runtime_api.h>

#include <string>

#include "garam/core/card_error.h"

namespace garam::cuda {

void check_launch(const char* kernel) {
    const cudaError_t status = cudaGetLastError();
    if (status == cudaSuccess) return;
    int ordinal = 0;  // of the card that this thread uses
    if (cudaGetDevice(&ordinal) != cudaSuccess) ordinal = 0;
    // Work that was enqueued before may be what failed.
    throw_card_error(static_cast<int>(status), "cuda:" + std::to_string(ordinal),
                     std::string("launching ") + kernel,
                     std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status));
}

}  // namespace garam::cuda
