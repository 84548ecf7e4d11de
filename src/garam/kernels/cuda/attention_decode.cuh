// Attention of few queries against long caches (Dao et al., 2023: Flash-Decoding): a block takes one
// chunk of kAttentionChunk keys of one key/value head, and all query heads that share it as the rows of
// one tile, so that the cache is read once. Each warp takes a part of the keys; the parts of a block
// and then the chunks of a segment are joined in their order.
//
// A step (attention_step.h) does all of it, and what is ahead of it, in one kernel. Its blocks bring the
// keys and values that are in the cache while the work ahead makes q, k and v, turn these as they take
// them in, and the last block of a head joins the head's chunks.
//
// Floor: keys and values read once.
#pragma once

#include "garam/kernels/cuda/attention_forward.cuh"
#include "garam/kernels/cuda/attention_step.h"
#include "garam/kernels/cuda/early_launch.cuh"

namespace garam::cuda {

template <int kHeadDim>
struct ChunkTiles {
    static constexpr int kWarps = 4;
    static constexpr int kThreads = kWarps * kWarp;
    static constexpr int kRows = 16;                          // queries times heads
    static constexpr int kKeys = kHeadDim <= 128 ? 128 : 64;  // at a time
    static constexpr int kWarpKeys = kKeys / kWarps;
    static constexpr int kPitch = TileLayout<kHeadDim>::kPitch;
    static constexpr int kRowBytes = kRows * kPitch;
    static constexpr int kKeyBytes = kKeys * kPitch;
    static constexpr int kJoinBytes = 2 * kWarps * kRows * 4;  // maxima and totals of the warps
    static constexpr int kBytes = kRowBytes + 2 * kKeyBytes + kJoinBytes;
    static_assert(kBytes <= 99 * 1024);
    // The warps' sums take the place of keys and values.
    static_assert(kWarps * kRows * kHeadDim * 4 <= 2 * kKeyBytes);
    static_assert(kAttentionChunk % kKeys == 0);
};

// 8 entries of a head from `column` on, turned by the angles of `position` as rotary.cu turns them. A position
// beyond the tables gives NaN.
__device__ __forceinline__ uint4 turned_8(const Bf16* head, int column, const AttentionStep& step,
                                          int position) {
    const int half = static_cast<int>(step.half);
    const uint4 own = *reinterpret_cast<const uint4*>(head + column);
    if (column >= 2 * half) return own;
    const bool first = column < half;
    const int entry = first ? column : column - half;
    const uint4 other = *reinterpret_cast<const uint4*>(head + (first ? column + half : entry));
    float c[8], s[8];
    if (position < step.table_rows) {
        const float* const cos =
            static_cast<const float*>(step.cos.data) + position * step.cos.pitch + entry;
        const float* const sin =
            static_cast<const float*>(step.sin.data) + position * step.sin.pitch + entry;
#pragma unroll
        for (int i = 0; i < 8; i += 4) {
            *reinterpret_cast<float4*>(c + i) = *reinterpret_cast<const float4*>(cos + i);
            *reinterpret_cast<float4*>(s + i) = *reinterpret_cast<const float4*>(sin + i);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 8; ++i)
            c[i] = s[i] = NAN;
    }
    const Bf16* const x = reinterpret_cast<const Bf16*>(&own);
    const Bf16* const y = reinterpret_cast<const Bf16*>(&other);
    float turned[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
        turned[i] = first ? to_float(x[i]) * c[i] - to_float(y[i]) * s[i]
                          : to_float(x[i]) * c[i] + to_float(y[i]) * s[i];
    return {pack(turned[0], turned[1]), pack(turned[2], turned[3]), pack(turned[4], turned[5]),
            pack(turned[6], turned[7])};
}

// The chunks [begin, end) of the heads of a block, joined in their order; a warp takes a head.
template <int kHeadDim, int kWarps, typename PartialRow>
__device__ __forceinline__ void join_chunks(const AttentionWork& work,
                                            const AttentionSplits& splits, int begin, int end,
                                            int first_head, int heads,
                                            const PartialRow& partial_row) {
    constexpr int kColumns = (kHeadDim + kWarp - 1) / kWarp;  // of a lane
    constexpr int kAtOnce = kHeadDim <= 128 ? 8 : 4;
    const int d = static_cast<int>(work.head_dim);
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    for (int r = static_cast<int>(threadIdx.x) / kWarp; r < heads; r += kWarps) {
        float maximum = -INFINITY;
        for (int c = begin + lane; c < end; c += kWarp)
            maximum = fmaxf(maximum, __ldcg(splits.lse + partial_row(c, r)));
        maximum = warp_max(maximum);
        float sums[kColumns] = {};
        float total = 0;
#pragma unroll 1
        for (int base = begin; base < end; base += kAtOnce) {
            float lse[kAtOnce], parts[kAtOnce][kColumns];
#pragma unroll
            for (int u = 0; u < kAtOnce; ++u) {
                const bool inside = base + u < end;
                const std::int64_t from = partial_row(inside ? base + u : base, r);
                lse[u] = inside ? __ldcg(splits.lse + from) : -INFINITY;
#pragma unroll
                for (int j = 0; j < kColumns; ++j)
                    parts[u][j] = lane + j * kWarp < d
                                      ? __ldcg(splits.sums + from * d + lane + j * kWarp)
                                      : 0.0f;
            }
#pragma unroll
            for (int u = 0; u < kAtOnce; ++u) {
                const float weight = exp2f(lse[u] - maximum);
                total += weight;
#pragma unroll
                for (int j = 0; j < kColumns; ++j)
                    sums[j] = fmaf(weight, parts[u][j], sums[j]);
            }
        }
        Bf16* const out =
            static_cast<Bf16*>(work.out.data) + static_cast<std::int64_t>(first_head + r) * d;
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
            if (lane + j * kWarp < d) out[lane + j * kWarp] = from_float<Bf16>(sums[j] / total);
    }
}

template <int kHeadDim, bool kVector, bool kStep>
__global__ void __launch_bounds__(ChunkTiles<kHeadDim>::kThreads)
    attention_chunk_kernel(const __grid_constant__ AttentionWork work,
                           const __grid_constant__ AttentionSplits splits,
                           const __grid_constant__ AttentionStep step) {
    static_assert(kVector || !kStep);
    using Tiles = ChunkTiles<kHeadDim>;
    using Layout = TileLayout<kHeadDim>;
    constexpr int kRows = Tiles::kRows;
    constexpr int kWarpKeys = Tiles::kWarpKeys;
    constexpr int kChunk = static_cast<int>(kAttentionChunk);
    extern __shared__ __align__(128) unsigned char shared_memory[];
    let_next_begin();
    if constexpr (!kStep) wait_for_previous();

    TilePlace place;
    if constexpr (kStep)
        place = {0, static_cast<int>(blockIdx.y), 0};
    else if (!find_tile(work.cu_k, static_cast<int>(work.segments), 1, kChunk,
                        static_cast<int>(blockIdx.y), place))
        return;
    const int kv_head = static_cast<int>(blockIdx.x);
    const int group = static_cast<int>(work.heads / work.kv_heads);
    const int head_dim = static_cast<int>(work.head_dim);
    const int q_row = kStep ? 0 : work.cu_q[place.segment];
    const int k_row = kStep ? 0 : work.cu_k[place.segment];
    const int lq = kStep ? 1 : work.cu_q[place.segment + 1] - q_row;
    const int lk = work.cu_k[place.segment + 1] - k_row;
    const int first = static_cast<int>(blockIdx.z) * kRows;
    const int rows = min(kRows, lq * group - first);
    if (rows <= 0) return;
    const int chunk_key = place.tile * kChunk;
    const int key_end = min(lk, chunk_key + kChunk);
    const int window = window_of(work);
    const ScoreScale scale = score_scale(work);
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % kWarp;
    const int warp = thread / kWarp;
    // Row r of the tile is head (first + r) % group of query (first + r) / group.
    const auto partial_row = [&](int chunk, int r) {
        const std::int64_t query = (first + r) / group;
        return (chunk * splits.queries + query) * work.heads + kv_head * group +
               (first + r) % group;
    };
    const int own_chunk = static_cast<int>(blockIdx.y);
    if (kStep && chunk_key >= lk) return;
    if (lk - lq + first / group - (key_end - 1) >=
        window) {  // the first query's window, and all after
        if (!kStep && thread < rows) splits.lse[partial_row(own_chunk, thread)] = -INFINITY;
        return;
    }

    const std::uint32_t queries = shared_address(shared_memory);
    const std::uint32_t keys = queries + Tiles::kRowBytes;
    const std::uint32_t values = keys + Tiles::kKeyBytes;
    float* const sums_of_warps = reinterpret_cast<float*>(shared_memory + Tiles::kRowBytes);
    float* const maxima_of_warps =
        reinterpret_cast<float*>(shared_memory + Tiles::kRowBytes + 2 * Tiles::kKeyBytes);
    float* const totals_of_warps = maxima_of_warps + Tiles::kWarps * kRows;

    const int filled = kStep ? lk - 1 : lk;  // keys that the cache has
    const auto load_keys_and_values = [&](int key) {
        load_tile<kHeadDim, Tiles::kKeys, Tiles::kThreads, kVector>(
            keys, head_rows(work.k, static_cast<std::int64_t>(k_row) + key, kv_head, head_dim),
            filled - key, head_dim);
        copy_async_commit();
        load_tile<kHeadDim, Tiles::kKeys, Tiles::kThreads, kVector>(
            values, head_rows(work.v, static_cast<std::int64_t>(k_row) + key, kv_head, head_dim),
            filled - key, head_dim);
        copy_async_commit();
    };
    // A step's last threads take the new token's key and value, the first ones most of the queries: none
    // waits for the one and then for the other.
    constexpr int kPieces = Layout::kChunks;
    static_assert(2 * kPieces <= Tiles::kThreads);
    const int new_piece = thread - (Tiles::kThreads - 2 * kPieces);
    const bool new_is_key = new_piece < kPieces;
    const int new_column = (new_is_key ? new_piece : new_piece - kPieces) * 8;
    const bool has_new = kStep && key_end == lk && new_piece >= 0 && new_column < head_dim;
    uint4 new_8{0, 0, 0, 0};
    if constexpr (kStep) {
        load_keys_and_values(chunk_key);
        wait_for_previous();
        if (has_new) {
            const std::int64_t head = static_cast<std::int64_t>(kv_head) * head_dim;
            new_8 =
                new_is_key
                    ? turned_8(static_cast<const Bf16*>(step.key) + head, new_column, step, lk - 1)
                    : *reinterpret_cast<const uint4*>(static_cast<const Bf16*>(step.value) + head +
                                                      new_column);
            if (blockIdx.z == 0) {
                const HeadRows row =
                    head_rows(new_is_key ? work.k : work.v, lk - 1, kv_head, head_dim);
                *reinterpret_cast<uint4*>(row.data + new_column) = new_8;
            }
        }
    }

    for (int i = thread; i < kRows * Layout::kChunks; i += Tiles::kThreads) {
        const int r = i / Layout::kChunks;
        const int column = i % Layout::kChunks * 8;
        const bool inside = r < rows && column < head_dim;
        const Bf16* const from = inside ? head_rows(work.q, q_row + (first + r) / group,
                                                    kv_head * group + (first + r) % group, head_dim)
                                                  .data +
                                              column
                                        : static_cast<const Bf16*>(work.q.data);
        const std::uint32_t to =
            queries + static_cast<std::uint32_t>(Layout::offset(r, column / 8));
        if constexpr (kStep)
            store_shared_16(
                to, inside ? turned_8(from - column, column, step, lk - 1) : uint4{0, 0, 0, 0});
        else if constexpr (kVector)
            copy_async_16(to, from, inside);
        else
            store_shared_16(to, inside ? load_8(from, head_dim - column) : uint4{0, 0, 0, 0});
    }

    float sums[1][kHeadDim / 8][4] = {};
    float maxima[2] = {-INFINITY, -INFINITY};
    float totals[2] = {};
    int positions[2];
    for (int half = 0; half < 2; ++half)
        positions[half] = lk - lq + (first + lane / 4 + half * 8) / group;
    for (int key = chunk_key; key < key_end; key += Tiles::kKeys) {
        if (key > chunk_key) __syncthreads();  // all have read the keys and values before
        if (!kStep || key > chunk_key) load_keys_and_values(key);

        copy_async_wait<kStep ? 0 : 1>();
        __syncthreads();
        if constexpr (kStep) {
            const int new_row = lk - 1 - key;
            if (new_row < Tiles::kKeys && key_end == lk) {  // the same in all threads
                if (has_new)
                    store_shared_16(
                        (new_is_key ? keys : values) +
                            static_cast<std::uint32_t>(Layout::offset(new_row, new_column / 8)),
                        new_8);
                __syncthreads();
            }
        }
        const std::uint32_t warp_offset =
            static_cast<std::uint32_t>(warp * kWarpKeys * Tiles::kPitch);
        float scores[1][kWarpKeys / 8][4] = {};
        multiply_rows<kHeadDim, kWarpKeys, 1>(scores, TileFragments<kHeadDim>(queries, 0),
                                              keys + warp_offset);
#pragma unroll
        for (int n = 0; n < kWarpKeys / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float& score = scores[0][n][i];
                if (scale.inner != 0) score = bounded(score * scale.inner);
                const int at = key + warp * kWarpKeys + n * 8 + lane % 4 * 2 + i % 2;
                const int distance = positions[i / 2] - at;
                if (distance < 0 || distance >= window) score = -INFINITY;
            }
        soften<kWarpKeys, kHeadDim>(scores[0], maxima, totals, sums[0], scale.factor);
        std::uint32_t probabilities[1][kWarpKeys / 16][4];
        to_fragments<kWarpKeys>(scores[0], probabilities[0]);
        if constexpr (!kStep) {
            copy_async_wait<0>();
            __syncthreads();
        }
        multiply_columns<kHeadDim, kWarpKeys, kHeadDim, 1>(sums, probabilities,
                                                           values + warp_offset, 0);
    }

    // Join the warps: all move to the largest maximum, then one thread adds an element of all four.
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        totals[half] += __shfl_xor_sync(0xffffffffu, totals[half], 1);
        totals[half] += __shfl_xor_sync(0xffffffffu, totals[half], 2);
        if (lane % 4 == 0) {
            maxima_of_warps[warp * kRows + lane / 4 + half * 8] = maxima[half];
            totals_of_warps[warp * kRows + lane / 4 + half * 8] = totals[half];
        }
    }
    __syncthreads();  // also: keys and values are read
    const auto maximum_of = [&](int r) {
        float maximum = maxima_of_warps[r];
#pragma unroll
        for (int w = 1; w < Tiles::kWarps; ++w)
            maximum = fmaxf(maximum, maxima_of_warps[w * kRows + r]);
        return maximum;
    };
    const auto factor_of = [&](float own, float maximum) {
        return own == -INFINITY ? 0.0f : power_of_two((own - maximum) * scale.factor);
    };
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int r = lane / 4 + half * 8;
        const float factor = factor_of(maxima[half], maximum_of(r));
#pragma unroll
        for (int n = 0; n < kHeadDim / 8; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i)
                sums_of_warps[(warp * kRows + r) * kHeadDim + n * 8 + lane % 4 * 2 + i] =
                    sums[0][n][2 * half + i] * factor;
    }
    __syncthreads();
    // Chunks that a step's window leaves out come before the others; one alone has nothing to join.
    const int chunks_begin = kStep ? max(0, lk - window) / kChunk : 0;
    const int chunks_end = (lk + kChunk - 1) / kChunk;
    const bool alone = kStep && chunks_end - chunks_begin == 1;
    for (int r = warp; r < rows; r += Tiles::kWarps) {
        const float maximum = maximum_of(r);
        float total = 0;
#pragma unroll
        for (int w = 0; w < Tiles::kWarps; ++w)
            total +=
                totals_of_warps[w * kRows + r] * factor_of(maxima_of_warps[w * kRows + r], maximum);
        const std::int64_t to = partial_row(own_chunk, r);
        const float inverse = total > 0 ? 1.0f / total : 0.0f;
        for (int i = lane; i < head_dim; i += kWarp) {
            float sum = 0;
#pragma unroll
            for (int w = 0; w < Tiles::kWarps; ++w)
                sum += sums_of_warps[(w * kRows + r) * kHeadDim + i];
            if (alone)
                head_rows(work.out, 0, kv_head * group + first + r, head_dim).data[i] =
                    from_float<Bf16>(sum * inverse);
            else
                splits.sums[to * head_dim + i] = sum * inverse;
        }
        if (lane == 0 && !alone)
            splits.lse[to] = total > 0 ? maximum * scale.factor + log2f(total) : -INFINITY;
    }
    if constexpr (kStep) {
        if (alone) return;
        __shared__ bool is_last;
        __threadfence();  // the chunk is written before its block counts as arrived
        __syncthreads();
        if (thread == 0) {
            std::int32_t* const arrivals = step.arrivals + kv_head * static_cast<int>(gridDim.z) +
                                           static_cast<int>(blockIdx.z);
            is_last = atomicAdd(arrivals, 1) == chunks_end - chunks_begin - 1;
            if (is_last) *arrivals = 0;
            __threadfence();
        }
        __syncthreads();
        if (is_last)
            join_chunks<kHeadDim, Tiles::kWarps>(work, splits, chunks_begin, chunks_end,
                                                 kv_head * group + first, rows, partial_row);
    }
}

template <int kHeadDim, bool kVector>
void launch_attention_chunks(StreamHandle stream, const AttentionWork& work,
                             const AttentionSplits& splits) {
    using Tiles = ChunkTiles<kHeadDim>;
    const auto kernel = attention_chunk_kernel<kHeadDim, kVector, false>;
    allow_shared(kernel, Tiles::kBytes);
    const std::int64_t rows = splits.queries * (work.heads / work.kv_heads);
    const dim3 grid(static_cast<unsigned>(work.kv_heads), static_cast<unsigned>(splits.chunks),
                    static_cast<unsigned>((rows + Tiles::kRows - 1) / Tiles::kRows));
    launch_early(kernel, grid, Tiles::kThreads, Tiles::kBytes, stream, work, splits,
                 AttentionStep{});
    check_launch("attention_forward (chunks)");
}

template <int kHeadDim>
void launch_attention_step(StreamHandle stream, const AttentionWork& work,
                           const AttentionSplits& splits, const AttentionStep& step) {
    using Tiles = ChunkTiles<kHeadDim>;
    const auto kernel = attention_chunk_kernel<kHeadDim, true, true>;
    allow_shared(kernel, Tiles::kBytes);
    const std::int64_t group = work.heads / work.kv_heads;
    const dim3 grid(static_cast<unsigned>(work.kv_heads), static_cast<unsigned>(splits.chunks),
                    static_cast<unsigned>((group + Tiles::kRows - 1) / Tiles::kRows));
    launch_early(kernel, grid, Tiles::kThreads, Tiles::kBytes, stream, work, splits, step);
    check_launch("cached_attention");
}

}  // namespace garam::cuda
