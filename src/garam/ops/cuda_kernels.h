// Between the ops and the CUDA kernels.
#pragma once

#include "garam/kernels/cuda/launch.h"
#include "garam/runtime/stream.h"

namespace garam {

// Whether an op's work goes to a card now (a dry stream counts, and does nothing).
inline bool runs_on_cuda(const Stream& stream) {
    return stream.device().kind() == DeviceKind::cuda;
}

inline cuda::Rows cuda_rows(const Tensor& x) {
    return {x.raw(), x.pitch()};
}

}  // namespace garam
