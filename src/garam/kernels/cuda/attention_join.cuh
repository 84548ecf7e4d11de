// Attention's chunks of keys (attention_decode.cuh): joining them, and computing them in f32.
#pragma once

#include "garam/kernels/cuda/attention_f32.cuh"
#include "garam/kernels/cuda/early_launch.cuh"

namespace garam::cuda {

// --- f32: a block for each query, head and chunk; a thread for each key ---------------------------

constexpr int kPlainChunk = static_cast<int>(kAttentionChunk);

__global__ void __launch_bounds__(kPlainChunk)
    plain_chunk_kernel(const __grid_constant__ AttentionWork work,
                       const __grid_constant__ AttentionSplits splits) {
    __shared__ float probabilities[kPlainChunk];
    __shared__ float of_warps[kPlainChunk / kWarp];
    TilePlace place;
    if (!find_tile(work.cu_k, static_cast<int>(work.segments), 1, kPlainChunk,
                   static_cast<int>(blockIdx.y), place))
        return;
    const int head = static_cast<int>(blockIdx.x);
    const int kv_head = head / static_cast<int>(work.heads / work.kv_heads);
    const int d = static_cast<int>(work.head_dim);
    const int query = static_cast<int>(blockIdx.z);
    const std::int64_t q_row = work.cu_q[place.segment];
    const std::int64_t k_row = work.cu_k[place.segment];
    const int lq = static_cast<int>(work.cu_q[place.segment + 1] - q_row);
    const int lk = static_cast<int>(work.cu_k[place.segment + 1] - k_row);
    if (query >= lq) return;
    const int first = place.tile * kPlainChunk;
    const int thread = static_cast<int>(threadIdx.x);
    const int distance = lk - lq + query - (first + thread);
    float score = -INFINITY;
    if (distance >= 0 && distance < window_of(work)) {
        float slope;
        score = plain_score(work,
                            plain_dot(plain_rows(work.q, q_row + query, head, d),
                                      plain_rows(work.k, k_row + first + thread, kv_head, d), d),
                            slope);
    }
    float maximum = warp_max(score);
    if (thread % kWarp == 0) of_warps[thread / kWarp] = maximum;
    __syncthreads();
    maximum = of_warps[0];
    for (int w = 1; w < kPlainChunk / kWarp; ++w)
        maximum = fmaxf(maximum, of_warps[w]);
    const float p = maximum == -INFINITY ? 0.0f : expf(score - maximum);
    probabilities[thread] = p;
    const float total = block_sum<kPlainChunk>(p, of_warps);
    const std::int64_t to = (blockIdx.y * splits.queries + query) * work.heads + head;
    if (thread == 0) splits.lse[to] = total > 0 ? maximum * kLog2E + log2f(total) : -INFINITY;
    if (!(total > 0)) return;
    const int count = min(kPlainChunk, lk - first);
    for (int i = thread; i < d; i += kPlainChunk) {
        float sum = 0;
        for (int j = 0; j < count; ++j)
            sum = fmaf(probabilities[j], plain_rows(work.v, k_row + first + j, kv_head, d)[i], sum);
        splits.sums[to * d + i] = sum / total;
    }
}

inline void launch_plain_chunks(StreamHandle stream, const AttentionWork& work,
                                const AttentionSplits& splits) {
    const dim3 grid(static_cast<unsigned>(work.heads), static_cast<unsigned>(splits.chunks),
                    static_cast<unsigned>(splits.queries));
    plain_chunk_kernel<<<grid, kPlainChunk, 0, stream>>>(work, splits);
    check_launch("attention_forward (chunks)");
}

// --- joining: a block for each query and head -----------------------------------------------------

constexpr int kJoinWarps = 8;

// Chunks of the segments before `segment`; the same in all threads.
__device__ __forceinline__ int chunks_before(const std::int32_t* cu_k, int segment) {
    int chunks = 0;
    for (int s = static_cast<int>(threadIdx.x) % kWarp; s < segment; s += kWarp)
        chunks += (cu_k[s + 1] - cu_k[s] + kPlainChunk - 1) / kPlainChunk;
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
        chunks += __shfl_xor_sync(0xffffffffu, chunks, offset);
    return chunks;
}

// Warp w adds chunks w, w + 8, …; the warps' sums are added in their order.
template <typename T>
__global__ void __launch_bounds__(kJoinWarps* kWarp)
    attention_join_kernel(const __grid_constant__ AttentionWork work,
                          const __grid_constant__ AttentionSplits splits) {
    constexpr int kColumns = static_cast<int>(kMostHeadDim) / kWarp;  // of a lane
    __shared__ float sums_of_warps[kJoinWarps][kMostHeadDim];
    __shared__ float totals_of_warps[kJoinWarps];
    let_next_begin();
    wait_for_previous();
    const int head = static_cast<int>(blockIdx.x);
    const int row = static_cast<int>(blockIdx.y);
    TilePlace place;
    if (!find_tile(work.cu_q, static_cast<int>(work.segments), 1, 1, row, place)) return;
    const int lk = work.cu_k[place.segment + 1] - work.cu_k[place.segment];
    const int chunks = (lk + kPlainChunk - 1) / kPlainChunk;
    const int d = static_cast<int>(work.head_dim);
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const std::int64_t step = splits.queries * work.heads;  // from one chunk to the next
    const std::int64_t first =
        (chunks_before(work.cu_k, place.segment) * splits.queries + place.tile) * work.heads + head;

    float maximum = -INFINITY;
    for (int c = lane; c < chunks; c += kWarp)
        maximum = fmaxf(maximum, splits.lse[first + c * step]);
    maximum = warp_max(maximum);
    float sums[kColumns] = {};
    float total = 0;
#pragma unroll 4
    for (int c = warp; c < chunks; c += kJoinWarps) {
        const float lse = splits.lse[first + c * step];
        if (lse == -INFINITY) continue;  // its sums may be unwritten
        const float weight = exp2f(lse - maximum);
        total += weight;
        const float* const from = splits.sums + (first + c * step) * d;
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
            if (lane + j * kWarp < d) sums[j] = fmaf(weight, from[lane + j * kWarp], sums[j]);
    }
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
        sums_of_warps[warp][lane + j * kWarp] = sums[j];
    if (lane == 0) totals_of_warps[warp] = total;
    __syncthreads();
    total = 0;
    for (int w = 0; w < kJoinWarps; ++w)
        total += totals_of_warps[w];
    T* const out =
        static_cast<T*>(work.out.data) + row * work.out.pitch + static_cast<std::int64_t>(head) * d;
    for (int i = static_cast<int>(threadIdx.x); i < d; i += kJoinWarps * kWarp) {
        float sum = 0;
        for (int w = 0; w < kJoinWarps; ++w)
            sum += sums_of_warps[w][i];
        out[i] = from_float<T>(sum / total);
    }
    if (threadIdx.x == 0) work.lse[row * work.lse_pitch + head] = (maximum + log2f(total)) * kLn2;
}

template <typename T>
void launch_attention_join(StreamHandle stream, const AttentionWork& work,
                           const AttentionSplits& splits) {
    const dim3 grid(static_cast<unsigned>(work.heads), static_cast<unsigned>(work.q_tokens));
    launch_early(attention_join_kernel<T>, grid, kJoinWarps * kWarp, 0, stream, work, splits);
    check_launch("attention_forward (join)");
}

}  // namespace garam::cuda
