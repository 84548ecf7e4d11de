// Forward attention in bf16 (Dao, 2023: FlashAttention-2): a block holds kQueries queries of one head and
// walks over the keys it sees, kKeys at a time, the next ones under way while these are used. A warp owns
// its queries, so that softmax and sums stay in its registers.
//
// Floor: 4 flops for each allowed pair and head_dim entry at the rate of mma.sync (some 600 TFLOP/s of
// an H100's 989). A slab of 16 queries would read shared memory twice as fast as the tensor cores
// multiply; two slabs a warp share what they read.
#pragma once

#include "garam/kernels/cuda/attention_tiles.cuh"

namespace garam::cuda {

// kBlocks: on a multiprocessor, which bounds the registers of a thread.
template <int kColumns, int kNumWarps, int kSlabsOfWarp, int kKeysAtOnce, int kBlocksAtOnce>
struct ForwardCut {
    static constexpr int kHeadDim = kColumns;
    static constexpr int kWarps = kNumWarps;
    static constexpr int kThreads = kWarps * kWarp;
    static constexpr int kSlabs = kSlabsOfWarp;
    static constexpr int kQueries = kWarps * 16 * kSlabs;
    static constexpr int kKeys = kKeysAtOnce;
    static constexpr int kBlocks = kBlocksAtOnce;
    static constexpr int kPitch = TileLayout<kHeadDim>::kPitch;
    static constexpr int kKeyBytes = kKeys * kPitch;
    static constexpr int kBytes = kQueries * kPitch + 4 * kKeyBytes;  // keys and values, twice
    static_assert(kBytes <= 99 * 1024);
};
// 256 columns leave registers for the sums of one slab.
template <int kHeadDim>
using ForwardTiles = ForwardCut<kHeadDim, 4, kHeadDim <= 128 ? 2 : 1, kHeadDim <= 64 ? 64 : 32,
                                kHeadDim == 80 ? 3 : 2>;

// Marks as unseen what the causal mask or the window hides. Positions of the warp's first query and of
// the first key.
template <int kKeys>
__device__ __forceinline__ void hide_keys(float (&scores)[kKeys / 8][4], int query, int key,
                                          int window, float hidden) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int row = query + lane / 4;
    const int column = key + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int distance = row + i / 2 * 8 - (column + n * 8 + i % 2);
            if (distance < 0 || distance >= window) scores[n][i] = hidden;
        }
    }
}

// Scores of a slab become 2^(score - maximum), in place; maxima, totals (this thread's part) and sums
// of the rows g and g + 8 move to the new maximum.
template <int kKeys, int kHeadDim>
__device__ __forceinline__ void soften(float (&scores)[kKeys / 8][4], float (&maxima)[2],
                                       float (&totals)[2], float (&sums)[kHeadDim / 8][4],
                                       float factor) {
    constexpr unsigned kAll = 0xffffffffu;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float maximum = maxima[half];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
            maximum = fmaxf(maximum, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
        maximum = fmaxf(maximum, __shfl_xor_sync(kAll, maximum, 1));
        maximum = fmaxf(maximum, __shfl_xor_sync(kAll, maximum, 2));
        // A row that has seen no key yet (a window's edge) stays at zero.
        const float offset = maximum == -INFINITY ? 0.0f : maximum * factor;
        const float shrink = power_of_two(maxima[half] * factor - offset);
        maxima[half] = maximum;
        float total = 0;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; ++i) {
                scores[n][i] = power_of_two(fmaf(scores[n][i], factor, -offset));
                total += scores[n][i];
            }
        }
        totals[half] = totals[half] * shrink + total;
#pragma unroll
        for (int n = 0; n < kHeadDim / 8; ++n) {
            sums[n][2 * half] *= shrink;
            sums[n][2 * half + 1] *= shrink;
        }
    }
}

template <typename Tiles, bool kVector>
__global__ void __launch_bounds__(Tiles::kThreads, Tiles::kBlocks)
    attention_forward_kernel(const __grid_constant__ AttentionWork work) {
    constexpr int kHeadDim = Tiles::kHeadDim;
    constexpr int kQueries = Tiles::kQueries;
    constexpr int kKeys = Tiles::kKeys;
    constexpr int kSlabs = Tiles::kSlabs;
    extern __shared__ __align__(128) unsigned char shared_memory[];

    TilePlace place;
    if (!find_longest_tile(work.cu_q, static_cast<int>(work.segments), kQueries,
                           static_cast<int>(blockIdx.y), place))
        return;
    const int head = static_cast<int>(blockIdx.x);
    const int kv_head = head / static_cast<int>(work.heads / work.kv_heads);
    const int head_dim = static_cast<int>(work.head_dim);
    const int q_row = work.cu_q[place.segment];
    const int k_row = work.cu_k[place.segment];
    const int lq = work.cu_q[place.segment + 1] - q_row;
    const int lk = work.cu_k[place.segment + 1] - k_row;
    const int first = (place.tiles - 1 - place.tile) * kQueries;  // later ones see more keys
    const int position = lk - lq + first;
    const int window = window_of(work);
    const int key_end = min(lk, position + kQueries);
    const int key_begin = max(0, position - window + 1) / kKeys * kKeys;

    const std::uint32_t queries = shared_address(shared_memory);
    const std::uint32_t tiles = queries + kQueries * Tiles::kPitch;
    const HeadRows q = head_rows(work.q, q_row + first, head, head_dim);
    const HeadRows k = head_rows(work.k, k_row, kv_head, head_dim);
    const HeadRows v = head_rows(work.v, k_row, kv_head, head_dim);
    const auto load_keys = [&](int key, int stage) {
        const std::uint32_t to = tiles + static_cast<std::uint32_t>(stage * 2 * Tiles::kKeyBytes);
        load_tile<kHeadDim, kKeys, Tiles::kThreads, kVector>(to, {k.data + key * k.pitch, k.pitch},
                                                             lk - key, head_dim);
        load_tile<kHeadDim, kKeys, Tiles::kThreads, kVector>(
            to + Tiles::kKeyBytes, {v.data + key * v.pitch, v.pitch}, lk - key, head_dim);
        copy_async_commit();
    };
    load_tile<kHeadDim, kQueries, Tiles::kThreads, kVector>(queries, q, lq - first, head_dim);
    load_keys(key_begin, 0);

    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp_row = static_cast<int>(threadIdx.x) / kWarp * 16 * kSlabs;
    const int warp_position = position + warp_row;
    const ScoreScale scale = score_scale(work);
    float sums[kSlabs][kHeadDim / 8][4] = {};
    float maxima[kSlabs][2];
    float totals[kSlabs][2] = {};
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab)
        maxima[slab][0] = maxima[slab][1] = -INFINITY;

    int stage = 0;
    for (int key = key_begin; key < key_end; key += kKeys, stage ^= 1) {
        // This thread's part of the tile has come; after the barrier all parts have, and the other
        // stage is read by no warp any more.
        copy_async_wait<0>();
        __syncthreads();
        if (key + kKeys < key_end) load_keys(key + kKeys, stage ^ 1);

        const int last = warp_position + 16 * kSlabs - 1;
        if (key > last || warp_position - (key + kKeys - 1) >= window) continue;  // nothing seen
        const std::uint32_t keys = tiles + static_cast<std::uint32_t>(stage * 2 * Tiles::kKeyBytes);
        float scores[kSlabs][kKeys / 8][4] = {};
        multiply_rows<kHeadDim, kKeys, kSlabs>(scores, TileFragments<kHeadDim>(queries, warp_row),
                                               keys);
        if (scale.inner != 0) {
#pragma unroll
            for (int slab = 0; slab < kSlabs; ++slab)
#pragma unroll
                for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        scores[slab][n][i] = bounded(scores[slab][n][i] * scale.inner);
        }
        if (key + kKeys - 1 > warp_position || last - key >= window) {
#pragma unroll
            for (int slab = 0; slab < kSlabs; ++slab)
                hide_keys<kKeys>(scores[slab], warp_position + slab * 16, key, window, -INFINITY);
        }
        std::uint32_t probabilities[kSlabs][kKeys / 16][4];
#pragma unroll
        for (int slab = 0; slab < kSlabs; ++slab) {
            soften<kKeys, kHeadDim>(scores[slab], maxima[slab], totals[slab], sums[slab],
                                    scale.factor);
            to_fragments<kKeys>(scores[slab], probabilities[slab]);
        }
        multiply_columns<kHeadDim, kKeys, kHeadDim, kSlabs>(sums, probabilities,
                                                            keys + Tiles::kKeyBytes, 0);
    }

    const std::int64_t row = static_cast<std::int64_t>(q_row) + first + warp_row;
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
        const int valid = lq - first - warp_row - slab * 16;
        float inverse[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float total = totals[slab][half];
            total += __shfl_xor_sync(0xffffffffu, total, 1);
            total += __shfl_xor_sync(0xffffffffu, total, 2);
            inverse[half] = 1.0f / total;
            const int r = lane / 4 + half * 8;
            if (lane % 4 == 0 && r < valid)
                work.lse[(row + slab * 16 + r) * work.lse_pitch + head] =
                    maxima[slab][half] * scale.natural + logf(total);
        }
        store_rows<kHeadDim, kHeadDim, kVector>(
            queries, warp_row + slab * 16, 0, sums[slab], inverse[0], inverse[1],
            head_rows(work.out, row + slab * 16, head, head_dim), valid, head_dim);
    }
}

template <typename Tiles, bool kVector>
void launch_forward_cut(StreamHandle stream, const AttentionWork& work) {
    allow_shared(attention_forward_kernel<Tiles, kVector>, Tiles::kBytes);
    const dim3 grid(static_cast<unsigned>(work.heads),
                    static_cast<unsigned>(work.q_tokens / Tiles::kQueries + work.segments));
    attention_forward_kernel<Tiles, kVector>
        <<<grid, Tiles::kThreads, Tiles::kBytes, stream>>>(work);
    check_launch("attention_forward");
}

template <int kHeadDim, bool kVector>
void launch_attention_forward(StreamHandle stream, const AttentionWork& work) {
    launch_forward_cut<ForwardTiles<kHeadDim>, kVector>(stream, work);
}

}  // namespace garam::cuda
