// Stands in for runtime/cuda in a build without CUDA.
#include "garam/core/error.h"
#include "garam/runtime/device.h"

namespace garam {

CudaCards detect_cuda_cards() {
    return {{}, "this garam was built without CUDA"};
}

std::unique_ptr<Device> make_cuda_device(const DeviceProfile& /*profile*/) {
    throw Error(
        "device: cuda cannot be used, this garam was built without CUDA; device=cpu runs on "
        "the processor");
}

}  // namespace garam
