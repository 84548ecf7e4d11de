// activation(x) * up, the same bits wherever it is computed.
#pragma once

#include "garam/core/activation.h"
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

// An activation is x * part(x); its derivative is slope(x, part(x)).
template <Activation kActivation>
struct Activated;

template <>
struct Activated<Activation::silu> {
    template <typename T>
    __device__ __forceinline__ static float part(float x) {
        return sigmoid<T>(x);
    }
    __device__ __forceinline__ static float slope(float x, float part) {
        return part * (1.0f + x * (1.0f - part));
    }
};

// (1 + tanh(u)) / 2 is the sigmoid of 2 u. Beyond kEnd that is 0 or 1 to all bits, and the cube must not
// overflow. (A NaN is lost by the bounds, but not by the product with x.)
template <>
struct Activated<Activation::gelu_tanh> {
    static constexpr float kEnd = 16;
    static constexpr float kLinear = 1.5957691216f;  // 2 sqrt(2 / pi)
    static constexpr float kCubic = kLinear * 0.044715f;
    template <typename T>
    __device__ __forceinline__ static float part(float x) {
        const float y = fminf(fmaxf(x, -kEnd), kEnd);
        return sigmoid<T>(y * fmaf(kCubic, y * y, kLinear));
    }
    __device__ __forceinline__ static float slope(float x, float part) {
        const float y = fminf(fmaxf(x, -kEnd), kEnd);
        const float bent = y * fmaf(3 * kCubic, y * y, kLinear) * (1.0f - part);
        return x != x ? x : part * (1.0f + bent);
    }
};

template <Activation kActivation, typename T>
__device__ __forceinline__ T gated(float x, float up) {
    return from_float<T>(x * Activated<kActivation>::template part<T>(x) * up);
}

}  // namespace garam::cuda
