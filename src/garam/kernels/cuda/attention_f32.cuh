// Attention in f32 with plain products, for exact tests: blocks of 16 rows, 8 threads to a row, all
// operands in shared memory. Any head_dim up to 256.
#pragma once

#include "garam/kernels/cuda/attention_tiles.cuh"

namespace garam::cuda {

constexpr int kPlainRows = 16;  // of a block, and of what it walks over in the backward
constexpr int kPlainKeys = 32;  // the forward walks over
constexpr int kPlainLanes = 8;  // threads to a row
constexpr int kPlainThreads = kPlainRows * kPlainLanes;

// Floats from one row to the next: one more than an even head_dim keeps rows in different banks.
__host__ __device__ constexpr int plain_pitch(int head_dim) {
    return head_dim + 1;
}
constexpr int plain_forward_bytes(int head_dim) {
    return 4 *
           ((2 * kPlainRows + kPlainKeys) * plain_pitch(head_dim) + kPlainRows * (kPlainKeys + 1));
}
constexpr int plain_keys_bytes(int head_dim) {
    return 4 * (6 * kPlainRows * plain_pitch(head_dim) + 2 * kPlainRows * (kPlainRows + 1));
}
constexpr int plain_queries_bytes(int head_dim) {
    return 4 * (5 * kPlainRows * plain_pitch(head_dim) + kPlainRows * (kPlainRows + 1));
}
static_assert(plain_keys_bytes(kMostHeadDim) <= 99 * 1024);
static_assert(plain_forward_bytes(kMostHeadDim) <= 99 * 1024);

__device__ __forceinline__ float* plain_rows(const Rows& x, std::int64_t row, int head,
                                             int head_dim) {
    return static_cast<float*>(x.data) + row * x.pitch + static_cast<std::int64_t>(head) * head_dim;
}

// `rows` rows into shared memory, those from `valid` on as zeros.
__device__ __forceinline__ void plain_load(float* to, const float* x, std::int64_t pitch, int rows,
                                           int valid, int head_dim) {
    for (int i = static_cast<int>(threadIdx.x); i < rows * head_dim; i += kPlainThreads) {
        const int row = i / head_dim;
        const int column = i % head_dim;
        to[row * plain_pitch(head_dim) + column] = row < valid ? x[row * pitch + column] : 0.0f;
    }
}
__device__ __forceinline__ float plain_dot(const float* a, const float* b, int n) {
    float sum = 0;
    for (int i = 0; i < n; ++i)
        sum = fmaf(a[i], b[i], sum);
    return sum;
}
// The score of q . k and, in `slope`, its derivative.
__device__ __forceinline__ float plain_score(const AttentionWork& work, float product,
                                             float& slope) {
    slope = work.scale;
    if (work.softcap <= 0) return work.scale * product;
    const float t = tanhf(work.scale * product / work.softcap);
    slope *= 1.0f - t * t;
    return work.softcap * t;
}

__global__ void __launch_bounds__(kPlainThreads)
    plain_forward_kernel(const __grid_constant__ AttentionWork work) {
    extern __shared__ __align__(128) unsigned char shared_memory[];
    TilePlace place;
    if (!find_tile(work.cu_q, static_cast<int>(work.segments), 1, kPlainRows,
                   static_cast<int>(blockIdx.y), place))
        return;
    const int head = static_cast<int>(blockIdx.x);
    const int kv_head = head / static_cast<int>(work.heads / work.kv_heads);
    const int d = static_cast<int>(work.head_dim);
    const int pitch = plain_pitch(d);
    const int q_row = work.cu_q[place.segment];
    const int k_row = work.cu_k[place.segment];
    const int lq = work.cu_q[place.segment + 1] - q_row;
    const int lk = work.cu_k[place.segment + 1] - k_row;
    const int first = place.tile * kPlainRows;
    const int window = window_of(work);
    const int key_end = min(lk, lk - lq + first + kPlainRows);
    const int key_begin = max(0, lk - lq + first - window + 1) / kPlainKeys * kPlainKeys;

    float* const queries = reinterpret_cast<float*>(shared_memory);
    float* const sums = queries + kPlainRows * pitch;
    float* const tile = sums + kPlainRows * pitch;
    float* const probabilities = tile + kPlainKeys * pitch;
    const int row = static_cast<int>(threadIdx.x) / kPlainLanes;
    const int lane = static_cast<int>(threadIdx.x) % kPlainLanes;
    const int position = lk - lq + first + row;
    plain_load(queries, plain_rows(work.q, q_row + first, head, d), work.q.pitch, kPlainRows,
               lq - first, d);
    for (int i = lane; i < d; i += kPlainLanes)
        sums[row * pitch + i] = 0;
    float maximum = -INFINITY;
    float total = 0;
    for (int key = key_begin; key < key_end; key += kPlainKeys) {
        __syncthreads();
        plain_load(tile, plain_rows(work.k, k_row + key, kv_head, d), work.k.pitch, kPlainKeys,
                   lk - key, d);
        __syncthreads();
        float scores[kPlainKeys / kPlainLanes];
        float highest = maximum;
#pragma unroll
        for (int j = 0; j < kPlainKeys / kPlainLanes; ++j) {
            const int column = lane + j * kPlainLanes;
            float slope;
            scores[j] = plain_score(
                work, plain_dot(queries + row * pitch, tile + column * pitch, d), slope);
            const int distance = position - (key + column);
            if (distance < 0 || distance >= window) scores[j] = -INFINITY;
            highest = fmaxf(highest, scores[j]);
        }
#pragma unroll
        for (int offset = kPlainLanes / 2; offset > 0; offset /= 2)
            highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, offset));
        const float offset = highest == -INFINITY ? 0.0f : highest;
        const float shrink = expf(maximum - offset);
        maximum = highest;
        float sum = 0;
#pragma unroll
        for (int j = 0; j < kPlainKeys / kPlainLanes; ++j) {
            const float p = expf(scores[j] - offset);
            probabilities[row * (kPlainKeys + 1) + lane + j * kPlainLanes] = p;
            sum += p;
        }
        total = total * shrink + sum;
        __syncthreads();
        plain_load(tile, plain_rows(work.v, k_row + key, kv_head, d), work.v.pitch, kPlainKeys,
                   lk - key, d);
        __syncthreads();
        for (int i = lane; i < d; i += kPlainLanes) {
            float y = sums[row * pitch + i] * shrink;
            for (int j = 0; j < kPlainKeys; ++j)
                y = fmaf(probabilities[row * (kPlainKeys + 1) + j], tile[j * pitch + i], y);
            sums[row * pitch + i] = y;
        }
    }
#pragma unroll
    for (int offset = kPlainLanes / 2; offset > 0; offset /= 2)
        total += __shfl_xor_sync(0xffffffffu, total, offset);
    if (first + row >= lq) return;
    const std::int64_t at = static_cast<std::int64_t>(q_row) + first + row;
    float* const out = plain_rows(work.out, at, head, d);
    for (int i = lane; i < d; i += kPlainLanes)
        out[i] = sums[row * pitch + i] / total;
    if (lane == 0) work.lse[at * work.lse_pitch + head] = maximum + logf(total);
}

__global__ void __launch_bounds__(kPlainThreads)
    plain_keys_kernel(const __grid_constant__ AttentionWork work,
                      const __grid_constant__ AttentionGradients gradients) {
    extern __shared__ __align__(128) unsigned char shared_memory[];
    TilePlace place;
    if (!find_tile(work.cu_q, static_cast<int>(work.segments), 1, kPlainRows,
                   static_cast<int>(blockIdx.y), place))
        return;
    const int kv_head = static_cast<int>(blockIdx.x);
    const int group = static_cast<int>(work.heads / work.kv_heads);
    const int d = static_cast<int>(work.head_dim);
    const int pitch = plain_pitch(d);
    const int begin = work.cu_q[place.segment];
    const int length = work.cu_q[place.segment + 1] - begin;
    const int key = place.tile * kPlainRows;
    const int window = min(window_of(work), length);
    const int query_end = min(length, key + kPlainRows - 1 + window);

    float* const keys = reinterpret_cast<float*>(shared_memory);
    float* const values = keys + kPlainRows * pitch;
    float* const queries = values + kPlainRows * pitch;
    float* const douts = queries + kPlainRows * pitch;
    float* const dk = douts + kPlainRows * pitch;
    float* const dv = dk + kPlainRows * pitch;
    float* const ps = dv + kPlainRows * pitch;
    float* const dss = ps + kPlainRows * (kPlainRows + 1);
    const int row = static_cast<int>(threadIdx.x) / kPlainLanes;
    const int lane = static_cast<int>(threadIdx.x) % kPlainLanes;
    plain_load(keys, plain_rows(work.k, begin + key, kv_head, d), work.k.pitch, kPlainRows,
               length - key, d);
    plain_load(values, plain_rows(work.v, begin + key, kv_head, d), work.v.pitch, kPlainRows,
               length - key, d);
    for (int i = lane; i < d; i += kPlainLanes)
        dk[row * pitch + i] = dv[row * pitch + i] = 0;
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (int query = key; query < query_end; query += kPlainRows) {
            const std::int64_t at = static_cast<std::int64_t>(begin) + query;
            __syncthreads();
            plain_load(queries, plain_rows(work.q, at, head, d), work.q.pitch, kPlainRows,
                       length - query, d);
            plain_load(douts, plain_rows(gradients.dout, at, head, d), gradients.dout.pitch,
                       kPlainRows, length - query, d);
            __syncthreads();
            for (int column = lane; column < kPlainRows; column += kPlainLanes) {
                float p = 0;
                float ds = 0;
                const int distance = query + column - (key + row);
                if (query + column < length && distance >= 0 && distance < window) {
                    float slope;
                    const float score = plain_score(
                        work, plain_dot(keys + row * pitch, queries + column * pitch, d), slope);
                    p = expf(score - work.lse[(at + column) * work.lse_pitch + head]);
                    const float dp = plain_dot(values + row * pitch, douts + column * pitch, d);
                    ds = p * (dp - gradients.delta[(at + column) * work.heads + head]) * slope;
                }
                ps[row * (kPlainRows + 1) + column] = p;
                dss[row * (kPlainRows + 1) + column] = ds;
            }
            __syncthreads();
            for (int i = lane; i < d; i += kPlainLanes) {
                float k_sum = dk[row * pitch + i];
                float v_sum = dv[row * pitch + i];
                for (int j = 0; j < kPlainRows; ++j) {
                    k_sum = fmaf(dss[row * (kPlainRows + 1) + j], queries[j * pitch + i], k_sum);
                    v_sum = fmaf(ps[row * (kPlainRows + 1) + j], douts[j * pitch + i], v_sum);
                }
                dk[row * pitch + i] = k_sum;
                dv[row * pitch + i] = v_sum;
            }
        }
    }
    if (key + row >= length) return;
    const std::int64_t at = static_cast<std::int64_t>(begin) + key + row;
    for (int i = lane; i < d; i += kPlainLanes) {
        plain_rows(gradients.dk, at, kv_head, d)[i] = dk[row * pitch + i];
        plain_rows(gradients.dv, at, kv_head, d)[i] = dv[row * pitch + i];
    }
}

__global__ void __launch_bounds__(kPlainThreads)
    plain_queries_kernel(const __grid_constant__ AttentionWork work,
                         const __grid_constant__ AttentionGradients gradients) {
    extern __shared__ __align__(128) unsigned char shared_memory[];
    TilePlace place;
    if (!find_tile(work.cu_q, static_cast<int>(work.segments), 1, kPlainRows,
                   static_cast<int>(blockIdx.y), place))
        return;
    const int head = static_cast<int>(blockIdx.x);
    const int kv_head = head / static_cast<int>(work.heads / work.kv_heads);
    const int d = static_cast<int>(work.head_dim);
    const int pitch = plain_pitch(d);
    const int begin = work.cu_q[place.segment];
    const int length = work.cu_q[place.segment + 1] - begin;
    const int first = place.tile * kPlainRows;
    const int window = window_of(work);
    const int key_end = min(length, first + kPlainRows);
    const int key_begin = max(0, first - window + 1) / kPlainRows * kPlainRows;

    float* const queries = reinterpret_cast<float*>(shared_memory);
    float* const douts = queries + kPlainRows * pitch;
    float* const keys = douts + kPlainRows * pitch;
    float* const values = keys + kPlainRows * pitch;
    float* const dq = values + kPlainRows * pitch;
    float* const dss = dq + kPlainRows * pitch;
    const int row = static_cast<int>(threadIdx.x) / kPlainLanes;
    const int lane = static_cast<int>(threadIdx.x) % kPlainLanes;
    const std::int64_t at = static_cast<std::int64_t>(begin) + first;
    plain_load(queries, plain_rows(work.q, at, head, d), work.q.pitch, kPlainRows, length - first,
               d);
    plain_load(douts, plain_rows(gradients.dout, at, head, d), gradients.dout.pitch, kPlainRows,
               length - first, d);
    for (int i = lane; i < d; i += kPlainLanes)
        dq[row * pitch + i] = 0;
    const bool inside = first + row < length;
    const float lse = inside ? work.lse[(at + row) * work.lse_pitch + head] : 0.0f;
    const float delta = inside ? gradients.delta[(at + row) * work.heads + head] : 0.0f;
    for (int key = key_begin; key < key_end; key += kPlainRows) {
        __syncthreads();
        plain_load(keys, plain_rows(work.k, begin + key, kv_head, d), work.k.pitch, kPlainRows,
                   length - key, d);
        plain_load(values, plain_rows(work.v, begin + key, kv_head, d), work.v.pitch, kPlainRows,
                   length - key, d);
        __syncthreads();
        for (int column = lane; column < kPlainRows; column += kPlainLanes) {
            float ds = 0;
            const int distance = first + row - (key + column);
            if (inside && distance >= 0 && distance < window) {
                float slope;
                const float score = plain_score(
                    work, plain_dot(queries + row * pitch, keys + column * pitch, d), slope);
                const float dp = plain_dot(douts + row * pitch, values + column * pitch, d);
                ds = expf(score - lse) * (dp - delta) * slope;
            }
            dss[row * (kPlainRows + 1) + column] = ds;
        }
        __syncthreads();
        for (int i = lane; i < d; i += kPlainLanes) {
            float sum = dq[row * pitch + i];
            for (int j = 0; j < kPlainRows; ++j)
                sum = fmaf(dss[row * (kPlainRows + 1) + j], keys[j * pitch + i], sum);
            dq[row * pitch + i] = sum;
        }
    }
    if (!inside) return;
    for (int i = lane; i < d; i += kPlainLanes)
        plain_rows(gradients.dq, at + row, head, d)[i] = dq[row * pitch + i];
}

inline void launch_plain_forward(StreamHandle stream, const AttentionWork& work) {
    const int bytes = plain_forward_bytes(static_cast<int>(work.head_dim));
    allow_shared(plain_forward_kernel, bytes);
    const dim3 grid(static_cast<unsigned>(work.heads),
                    static_cast<unsigned>(work.q_tokens / kPlainRows + work.segments));
    plain_forward_kernel<<<grid, kPlainThreads, bytes, stream>>>(work);
    check_launch("attention_forward");
}

inline void launch_plain_backward(StreamHandle stream, const AttentionWork& work,
                                  const AttentionGradients& gradients) {
    const int keys_bytes = plain_keys_bytes(static_cast<int>(work.head_dim));
    const int queries_bytes = plain_queries_bytes(static_cast<int>(work.head_dim));
    allow_shared(plain_keys_kernel, keys_bytes);
    allow_shared(plain_queries_kernel, queries_bytes);
    const auto tiles = static_cast<unsigned>(work.q_tokens / kPlainRows + work.segments);
    // dq first: dk and dv may lie over k and v.
    const dim3 queries(static_cast<unsigned>(work.heads), tiles);
    plain_queries_kernel<<<queries, kPlainThreads, queries_bytes, stream>>>(work, gradients);
    check_launch("attention_backward (dq)");
    const dim3 keys(static_cast<unsigned>(work.kv_heads), tiles);
    plain_keys_kernel<<<keys, kPlainThreads, keys_bytes, stream>>>(work, gradients);
    check_launch("attention_backward (dk, dv)");
}

}  // namespace garam::cuda
