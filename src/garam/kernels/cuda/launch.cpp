#include "garam/kernels/cuda/launch.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>

#include "garam/core/card_error.h"

namespace garam::cuda {
namespace {

[[noreturn]] void fail(cudaError_t status, const std::string& doing) {
    int ordinal = 0;  // of the card that this thread uses
    if (cudaGetDevice(&ordinal) != cudaSuccess) ordinal = 0;
    throw_card_error(static_cast<int>(status), "cuda:" + std::to_string(ordinal), doing,
                     std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status));
}

}  // namespace

void check_launch(const char* kernel) {
    const cudaError_t status = cudaGetLastError();
    // Work that was enqueued before may be what failed.
    if (status != cudaSuccess) fail(status, std::string("launching ") + kernel);
}

void check_card(const char* doing) {
    const cudaError_t status = cudaDeviceSynchronize();
    if (is_lost_card(static_cast<int>(status))) fail(status, doing);
}

int multiprocessors() {
    int device = 0;
    int count = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    return std::max(count, 1);
}

}  // namespace garam::cuda
