// What CUDA kernels share on the device's side: vectors of 16 bytes, conversions, sums over a warp and a
// block in a fixed order.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace garam::cuda {

constexpr int kWarp = 32;

__device__ __forceinline__ float to_float(float x) {
    return x;
}
__device__ __forceinline__ float to_float(__nv_bfloat16 x) {
    return __bfloat162float(x);
}
__device__ __forceinline__ float to_float(__half x) {
    return __half2float(x);
}
template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
    return x;
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
    return __float2bfloat16_rn(x);
}
template <>
__device__ __forceinline__ __half from_float<__half>(float x) {
    return __float2half_rn(x);
}

// A kernel that was launched to begin before the one ahead of it has ended (sm_90 and later) may only read
// what older work left until it has waited; the one ahead lets it begin. Elsewhere both do nothing.
__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// N elements moved as one access; sizeof(T) * N of 4, 8 or 16, and the address a multiple of it.
template <typename T, int N>
struct alignas(sizeof(T) * N) Vector {
    T at[N];
};
// Elements of a 16-byte access.
template <typename T>
constexpr int kVector = 16 / static_cast<int>(sizeof(T));

// Sum over the lanes, the same in all of them; always the same order.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}
// Sum over the block, the same in all threads. `shared` holds one float a warp; a barrier stands at both
// ends, so that it may be used again at once.
template <int kThreads>
__device__ __forceinline__ float block_sum(float x, float* shared) {
    x = warp_sum(x);
    if constexpr (kThreads == kWarp) return x;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    __syncthreads();
    if (threadIdx.x % kWarp == 0) shared[warp] = x;
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kThreads / kWarp; ++w)
        sum += shared[w];
    return sum;
}

// Of values of two kinds.
__device__ __forceinline__ float element_of(const void* data, bool is_bf16, std::int64_t i) {
    return is_bf16 ? to_float(static_cast<const __nv_bfloat16*>(data)[i])
                   : static_cast<const float*>(data)[i];
}

// The sum of products of pairs of bf16, in order, after `sum`.
__device__ __forceinline__ float add_products(std::uint32_t x, std::uint32_t y, float sum) {
    sum = fmaf(__uint_as_float(x << 16), __uint_as_float(y << 16), sum);
    return fmaf(__uint_as_float(x & 0xffff0000u), __uint_as_float(y & 0xffff0000u), sum);
}
__device__ __forceinline__ float add_products(const uint4& x, const uint4& y, float sum) {
    sum = add_products(x.x, y.x, sum);
    sum = add_products(x.y, y.y, sum);
    sum = add_products(x.z, y.z, sum);
    return add_products(x.w, y.w, sum);
}

}  // namespace garam::cuda
