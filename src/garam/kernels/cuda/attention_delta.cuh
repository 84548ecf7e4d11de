// What stands around the backward's two kernels.
//
// delta[t, h] = sum over a head's columns of dout * out, of f32 operands: bf16's dq kernel finds it beside
// its own work. Floor: both read once.
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

// dk and dv = the sum of their parts, in order. Floor: the parts read and the sums written once.
template <int kAtOnce>
__global__ void __launch_bounds__(kDeltaThreads)
    attention_parts_kernel(const __grid_constant__ AttentionGradients gradients, std::int64_t rows,
                           int width) {
    using Sums = Vector<float, kAtOnce>;
    using Values = Vector<Bf16, kAtOnce>;
    const std::int64_t size = rows * width;
    const std::int64_t i =
        (static_cast<std::int64_t>(blockIdx.x) * kDeltaThreads + threadIdx.x) * kAtOnce;
    if (i >= 2 * size) return;
    Sums sum = *reinterpret_cast<const Sums*>(gradients.part_sums + i);
    for (int part = 1; part < gradients.parts; ++part) {
        const Sums more = *reinterpret_cast<const Sums*>(gradients.part_sums + 2 * part * size + i);
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j)
            sum.at[j] += more.at[j];
    }
    Values rounded;
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
        rounded.at[j] = from_float<Bf16>(sum.at[j]);
    const Rows& to = i < size ? gradients.dk : gradients.dv;
    const std::int64_t row = i % size / width;
    const std::int64_t column = i % size % width;
    *reinterpret_cast<Values*>(static_cast<Bf16*>(to.data) + row * to.pitch + column) = rounded;
}

inline void launch_attention_parts(StreamHandle stream, const AttentionWork& work,
                                   const AttentionGradients& gradients, bool vectors) {
    constexpr int kAtOnce = 4;
    const int width = static_cast<int>(work.kv_heads * work.head_dim);
    const std::int64_t threads = 2 * work.q_tokens * width / (vectors ? kAtOnce : 1);
    const auto blocks = static_cast<unsigned>((threads + kDeltaThreads - 1) / kDeltaThreads);
    if (vectors)
        attention_parts_kernel<kAtOnce>
            <<<blocks, kDeltaThreads, 0, stream>>>(gradients, work.q_tokens, width);
    else
        attention_parts_kernel<1>
            <<<blocks, kDeltaThreads, 0, stream>>>(gradients, work.q_tokens, width);
    check_launch("attention_backward (parts)");
}

}  // namespace garam::cuda
