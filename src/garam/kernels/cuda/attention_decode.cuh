// Attention of few queries against long caches (Dao et al., 2023: Flash-Decoding): a block takes one
// chunk of kAttentionChunk keys of one key/value head, and all query heads that share it as the rows of
// one tile, so that the cache is read once. Each warp takes a part of the keys; the parts of a block
// and then the chunks of a segment are joined in their order.
//
// Floor: keys and values read once.
#pragma once

#include "garam/kernels/cuda/attention_forward.cuh"
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

template <int kHeadDim, bool kVector>
__global__ void __launch_bounds__(ChunkTiles<kHeadDim>::kThreads)
    attention_chunk_kernel(const __grid_constant__ AttentionWork work,
                           const __grid_constant__ AttentionSplits splits) {
    using Tiles = ChunkTiles<kHeadDim>;
    using Layout = TileLayout<kHeadDim>;
    constexpr int kRows = Tiles::kRows;
    constexpr int kWarpKeys = Tiles::kWarpKeys;
    constexpr int kChunk = static_cast<int>(kAttentionChunk);
    extern __shared__ __align__(128) unsigned char shared_memory[];
    let_next_begin();
    wait_for_previous();

    TilePlace place;
    if (!find_tile(work.cu_k, static_cast<int>(work.segments), 1, kChunk,
                   static_cast<int>(blockIdx.y), place))
        return;
    const int kv_head = static_cast<int>(blockIdx.x);
    const int group = static_cast<int>(work.heads / work.kv_heads);
    const int head_dim = static_cast<int>(work.head_dim);
    const int q_row = work.cu_q[place.segment];
    const int k_row = work.cu_k[place.segment];
    const int lq = work.cu_q[place.segment + 1] - q_row;
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
    const auto partial_row = [&](int r) {
        const std::int64_t query = (first + r) / group;
        return (blockIdx.y * splits.queries + query) * work.heads + kv_head * group +
               (first + r) % group;
    };
    if (lk - lq + first / group - (key_end - 1) >=
        window) {  // the first query's window, and all after
        if (thread < rows) splits.lse[partial_row(thread)] = -INFINITY;
        return;
    }

    const std::uint32_t queries = shared_address(shared_memory);
    const std::uint32_t keys = queries + Tiles::kRowBytes;
    const std::uint32_t values = keys + Tiles::kKeyBytes;
    float* const sums_of_warps = reinterpret_cast<float*>(shared_memory + Tiles::kRowBytes);
    float* const maxima_of_warps =
        reinterpret_cast<float*>(shared_memory + Tiles::kRowBytes + 2 * Tiles::kKeyBytes);
    float* const totals_of_warps = maxima_of_warps + Tiles::kWarps * kRows;

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
        if constexpr (kVector)
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
        load_tile<kHeadDim, Tiles::kKeys, Tiles::kThreads, kVector>(
            keys, head_rows(work.k, static_cast<std::int64_t>(k_row) + key, kv_head, head_dim),
            lk - key, head_dim);
        copy_async_commit();
        load_tile<kHeadDim, Tiles::kKeys, Tiles::kThreads, kVector>(
            values, head_rows(work.v, static_cast<std::int64_t>(k_row) + key, kv_head, head_dim),
            lk - key, head_dim);
        copy_async_commit();

        copy_async_wait<1>();
        __syncthreads();
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
        copy_async_wait<0>();
        __syncthreads();
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
    for (int r = warp; r < rows; r += Tiles::kWarps) {
        const float maximum = maximum_of(r);
        float total = 0;
#pragma unroll
        for (int w = 0; w < Tiles::kWarps; ++w)
            total +=
                totals_of_warps[w * kRows + r] * factor_of(maxima_of_warps[w * kRows + r], maximum);
        const std::int64_t to = partial_row(r);
        const float inverse = total > 0 ? 1.0f / total : 0.0f;
        for (int i = lane; i < head_dim; i += kWarp) {
            float sum = 0;
#pragma unroll
            for (int w = 0; w < Tiles::kWarps; ++w)
                sum += sums_of_warps[(w * kRows + r) * kHeadDim + i];
            splits.sums[to * head_dim + i] = sum * inverse;
        }
        if (lane == 0)
            splits.lse[to] = total > 0 ? maximum * scale.factor + log2f(total) : -INFINITY;
    }
}

template <int kHeadDim, bool kVector>
void launch_attention_chunks(StreamHandle stream, const AttentionWork& work,
                             const AttentionSplits& splits) {
    using Tiles = ChunkTiles<kHeadDim>;
    allow_shared(attention_chunk_kernel<kHeadDim, kVector>, Tiles::kBytes);
    const std::int64_t rows = splits.queries * (work.heads / work.kv_heads);
    const dim3 grid(static_cast<unsigned>(work.kv_heads), static_cast<unsigned>(splits.chunks),
                    static_cast<unsigned>((rows + Tiles::kRows - 1) / Tiles::kRows));
    launch_early(attention_chunk_kernel<kHeadDim, kVector>, grid, Tiles::kThreads, Tiles::kBytes,
                 stream, work, splits);
    check_launch("attention_forward (chunks)");
}

}  // namespace garam::cuda
