// Launches that hide behind the work ahead of them (sm_90 and later): a kernel's blocks are placed, and it
// may read what older work left, while the kernel ahead of it still runs (let_next_begin(),
// wait_for_previous() of device_code.cuh).
#pragma once

#include "garam/kernels/cuda/device_code.cuh"

namespace garam::cuda {

// `kernel` must call wait_for_previous() before it touches what the work ahead reads or writes. Code that
// was compiled for older cards does not wait, and is launched as always.
template <typename... Parameters, typename... Arguments>
void launch_early(void (*kernel)(Parameters...), dim3 grid, dim3 block, int shared_bytes,
                  cudaStream_t stream, Arguments&&... arguments) {
    static const bool kWaits = [kernel] {
        cudaFuncAttributes attributes{};
        return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess &&
               attributes.ptxVersion >= 90;
    }();
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = kWaits ? 1 : 0;
    cudaLaunchKernelEx(&config, kernel, static_cast<Arguments&&>(arguments)...);
}

}  // namespace garam::cuda
