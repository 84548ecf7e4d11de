#include <cuda_runtime.h>

#include "testing/trap.h"

namespace garam::testing {
namespace {

__global__ void trap() {
    asm volatile("trap;");
}

}  // namespace

void lose_card(CUstream_st* queue) {
    trap<<<1, 1, 0, queue>>>();
    // Returns the error, and so will every call from now on.
    cudaDeviceSynchronize();
}

}  // namespace garam::testing
