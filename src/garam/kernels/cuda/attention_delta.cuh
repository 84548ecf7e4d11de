// delta[t, h] = sum over a head's columns of dout * out. Floor: both read once.
#pragma once

#include "garam/kernels/cuda/attention_tiles.cuh"

namespace garam::cuda {

constexpr int kDeltaThreads = 256;
constexpr int kDeltaLanes = 8;  // threads to a head of a row

template <typename T, bool kVectors>
__global__ void __launch_bounds__(kDeltaThreads)
    attention_delta_kernel(Rows dout, Rows out, std::int64_t pairs, int heads, int head_dim,
                           float* delta) {
    constexpr int kAtOnce = kVectors ? kVector<T> : 1;
    using Piece = Vector<T, kAtOnce>;
    const std::int64_t pair =
        (static_cast<std::int64_t>(blockIdx.x) * kDeltaThreads + threadIdx.x) / kDeltaLanes;
    const int lane = static_cast<int>(threadIdx.x) % kDeltaLanes;
    float sum = 0;
    if (pair < pairs) {
        const std::int64_t row = pair / heads;
        const std::int64_t column = pair % heads * head_dim;
        const T* const a = static_cast<const T*>(dout.data) + row * dout.pitch + column;
        const T* const b = static_cast<const T*>(out.data) + row * out.pitch + column;
#pragma unroll 2
        for (int i = lane * kAtOnce; i < head_dim; i += kDeltaLanes * kAtOnce) {
            const Piece x = *reinterpret_cast<const Piece*>(a + i);
            const Piece y = *reinterpret_cast<const Piece*>(b + i);
#pragma unroll
            for (int j = 0; j < kAtOnce; ++j)
                sum = fmaf(to_float(x.at[j]), to_float(y.at[j]), sum);
        }
    }
#pragma unroll
    for (int offset = kDeltaLanes / 2; offset > 0; offset /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (lane == 0 && pair < pairs) delta[pair] = sum;
}

template <typename T>
void launch_attention_delta(StreamHandle stream, const AttentionWork& work,
                            const AttentionGradients& gradients, bool vectors) {
    const std::int64_t pairs = work.q_tokens * work.heads;
    const auto blocks =
        static_cast<unsigned>((pairs * kDeltaLanes + kDeltaThreads - 1) / kDeltaThreads);
    const int heads = static_cast<int>(work.heads);
    const int head_dim = static_cast<int>(work.head_dim);
    if (vectors)
        attention_delta_kernel<T, true><<<blocks, kDeltaThreads, 0, stream>>>(
            gradients.dout, work.out, pairs, heads, head_dim, gradients.delta);
    else
        attention_delta_kernel<T, false><<<blocks, kDeltaThreads, 0, stream>>>(
            gradients.dout, work.out, pairs, heads, head_dim, gradients.delta);
    check_launch("attention_delta");
}

}  // namespace garam::cuda
