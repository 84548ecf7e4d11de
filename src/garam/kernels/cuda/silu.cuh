// silu(x) * up, the same bits wherever it is computed.
#pragma once

#include "garam/kernels/cuda/device_code.cuh"

namespace garam::cuda {

// Exact to fp32 where the result keeps that; to some 1e-6 where it is rounded to bf16.
template <typename T>
__device__ __forceinline__ float sigmoid(float x) {
    if constexpr (sizeof(T) == sizeof(float))
        return 1.0f / (1.0f + expf(-x));
    else
        return __fdividef(1.0f, 1.0f + __expf(-x));
}

template <typename T>
__device__ __forceinline__ T silu_mul(float x, float up) {
    return from_float<T>(x * sigmoid<T>(x) * up);
}

}  // namespace garam::cuda
