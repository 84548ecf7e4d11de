// Backward attention in bf16, in two kernels that need neither atomics nor sums in device memory: a block
// of keys walks over the queries that see it (dk, dv), and a block of queries over the keys it sees
// (dq). Both compute scores and d(probabilities) anew: seven products instead of five, each in a fixed
// order.
//
//   P = exp(s - lse), dP = dout v^T, dS = P * (dP - delta) * ds/d(q k^T)
//   dv = P^T dout, dk = dS^T q, dq = dS k,  delta = row sums of dout * out: by the dq kernel, the first
//
// Floor: 14 flops for each allowed pair and head_dim entry at the rate of mma.sync. A slab of 16 rows a
// warp reads 256 bytes of shared memory for each product of 4096 flops, which holds dk and dv, whose sums
// leave no registers for a second slab, to half of the card's tensor rate.
#pragma once

#include "garam/kernels/cuda/attention_tiles.cuh"

namespace garam::cuda {

// P and dS of 16 rows x kColumns from q k^T (in x) and dP (in dp), in place. lse in base 2 and delta:
// of the rows g, g + 8, or of the columns; factors as in ScoreScale. dS lacks the factor of work.scale.
template <int kColumns, typename LseOf, typename DeltaOf>
__device__ __forceinline__ void score_gradients(float (&x)[kColumns / 8][4],
                                                float (&dp)[kColumns / 8][4],
                                                const ScoreScale& scale, const LseOf& lse,
                                                const DeltaOf& delta) {
    if (scale.inner == 0) {
#pragma unroll
        for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float p = power_of_two(fmaf(x[n][i], scale.factor, -lse(n, i)));
                x[n][i] = p;
                dp[n][i] = p * (dp[n][i] - delta(n, i));
            }
    } else {
#pragma unroll
        for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float t = bounded(x[n][i] * scale.inner);
                const float p = power_of_two(fmaf(t, scale.factor, -lse(n, i)));
                x[n][i] = p;
                dp[n][i] = p * (dp[n][i] - delta(n, i)) * fmaf(-t, t, 1.0f);
            }
    }
}

// Zero where query (a row, or a column when kTransposed) does not see key.
template <int kColumns, bool kTransposed>
__device__ __forceinline__ void hide_pairs(float (&p)[kColumns / 8][4],
                                           float (&ds)[kColumns / 8][4], int first_row,
                                           int first_column, int window) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = first_row + lane / 4 + i / 2 * 8;
            const int column = first_column + n * 8 + lane % 4 * 2 + i % 2;
            const int distance = kTransposed ? column - row : row - column;
            if (distance < 0 || distance >= window) p[n][i] = ds[n][i] = 0;
        }
}

// Sums of a warp's 16 rows times `factor`, in fp32, to columns from `column` on of rows [0, valid).
template <int kColumns>
__device__ __forceinline__ void store_sums(const float (&x)[kColumns / 8][4], float factor,
                                           float* to, std::int64_t pitch, int column, int valid,
                                           int head_dim) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = lane / 4 + i / 2 * 8;
            const int at = column + n * 8 + lane % 4 * 2 + i % 2;
            if (row < valid && at < head_dim) to[row * pitch + at] = x[n][i] * factor;
        }
}

// --- dk, dv -------------------------------------------------------------------------------------

// kNumHalves: warps that share slabs of keys and divide the columns of dk and dv. kStep: queries of a tile
// at once, which with the slabs makes the registers of scores. kHold: keys and values stay in registers.
template <int kColumnsOfHead, int kSlabsOfWarp, int kNumHalves, int kQueriesOfTile,
          int kQueriesAtOnce, bool kHold, int kBlocksAtOnce>
struct KeyCut {
    static constexpr int kHeadDim = kColumnsOfHead;
    static constexpr int kSlabs = kSlabsOfWarp;
    static constexpr int kHalves = kNumHalves;
    static constexpr int kWarps = 4 * kHalves;
    static constexpr int kThreads = kWarps * kWarp;
    static constexpr int kKeys = 64 * kSlabs;
    static constexpr int kQueries = kQueriesOfTile;
    static constexpr int kStep = kQueriesAtOnce;
    static constexpr bool kHeld = kHold;
    static constexpr int kBlocks = kBlocksAtOnce;  // on a multiprocessor
    static constexpr int kColumns = kHeadDim / kHalves;
    static constexpr int kPitch = TileLayout<kHeadDim>::kPitch;
    static constexpr int kKeyBytes = kKeys * kPitch;
    static constexpr int kQueryBytes = kQueries * kPitch;
    static constexpr int kStageBytes = 2 * kQueryBytes + 2 * kQueries * 4;  // q, dout, lse, delta
    static constexpr int kBytes = 2 * kKeyBytes + 2 * kStageBytes;
    static_assert(kBytes <= 99 * 1024 && kQueries % kStep == 0 && (kSlabs == 1 || !kHeld));
};
// 96 and 128 columns of fragments would not fit into the registers beside the sums.
template <int kHeadDim>
using KeyTiles = KeyCut<kHeadDim, 1, kHeadDim <= 128 ? 1 : 2, kHeadDim <= 128 ? 64 : 16,
                        kHeadDim <= 64    ? 64
                        : kHeadDim <= 128 ? 32
                                          : 16,
                        kHeadDim <= 80, kHeadDim <= 128 ? 2 : 1>;

template <typename Tiles, bool kVector>
__global__ void __launch_bounds__(Tiles::kThreads, Tiles::kBlocks)
    attention_keys_kernel(const __grid_constant__ AttentionWork work,
                          const __grid_constant__ AttentionGradients gradients) {
    constexpr int kHeadDim = Tiles::kHeadDim;
    constexpr int kSlabs = Tiles::kSlabs;
    constexpr int kStep = Tiles::kStep;
    constexpr int kKeys = Tiles::kKeys;
    constexpr int kQueries = Tiles::kQueries;
    constexpr int kColumns = Tiles::kColumns;
    extern __shared__ __align__(128) unsigned char shared_memory[];

    TilePlace place;
    if (!find_longest_tile(work.cu_q, static_cast<int>(work.segments), kKeys,
                           static_cast<int>(blockIdx.y), place))
        return;
    const int parts = static_cast<int>(gradients.parts);
    const int kv_head = static_cast<int>(blockIdx.x) / parts;
    const int part = static_cast<int>(blockIdx.x) % parts;
    const int part_heads = static_cast<int>(work.heads / work.kv_heads) / parts;
    const int head_dim = static_cast<int>(work.head_dim);
    const int row = work.cu_q[place.segment];
    const int length = work.cu_q[place.segment + 1] - row;
    const int key = place.tile * kKeys;  // the first keys are seen by the most queries
    const int key_count = min(kKeys, length - key);
    const int window = min(window_of(work), length);
    const int query_end = min(length, key + key_count - 1 + window);

    const std::uint32_t keys = shared_address(shared_memory);
    const std::uint32_t values = keys + Tiles::kKeyBytes;
    const std::uint32_t stages = values + Tiles::kKeyBytes;
    load_tile<kHeadDim, kKeys, Tiles::kThreads, kVector>(
        keys, head_rows(work.k, row + key, kv_head, head_dim), key_count, head_dim);
    load_tile<kHeadDim, kKeys, Tiles::kThreads, kVector>(
        values, head_rows(work.v, row + key, kv_head, head_dim), key_count, head_dim);
    const auto load_queries = [&](int head, int query, int stage) {
        const std::uint32_t to = stages + static_cast<std::uint32_t>(stage * Tiles::kStageBytes);
        const std::int64_t at = row + query;
        const int valid = length - query;
        load_tile<kHeadDim, kQueries, Tiles::kThreads, kVector>(
            to, head_rows(work.q, at, head, head_dim), valid, head_dim);
        load_tile<kHeadDim, kQueries, Tiles::kThreads, kVector>(
            to + Tiles::kQueryBytes, head_rows(gradients.dout, at, head, head_dim), valid,
            head_dim);
        load_column<kQueries, Tiles::kThreads>(to + 2 * Tiles::kQueryBytes,
                                               work.lse + at * work.lse_pitch + head,
                                               work.lse_pitch, valid);
        load_column<kQueries, Tiles::kThreads>(to + 2 * Tiles::kQueryBytes + kQueries * 4,
                                               gradients.delta + at * work.heads + head, work.heads,
                                               valid);
        copy_async_commit();
    };
    int head = (kv_head * parts + part) * part_heads;
    const int last_head = head + part_heads - 1;
    int query = key;
    load_queries(head, query, 0);

    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int warp_row = warp % 4 * 16 * kSlabs;
    const int warp_key = key + warp_row;
    const int column = warp / 4 * kColumns;
    const ScoreScale scale = score_scale(work);
    constexpr bool kHeld = Tiles::kHeld;
    HeldFragments<kHeld ? kHeadDim : 16> held_keys, held_values;
    float dk[kSlabs][kColumns / 8][4] = {};
    float dv[kSlabs][kColumns / 8][4] = {};

    bool begin = true;
    int stage = 0;
    while (true) {
        copy_async_wait<0>();
        __syncthreads();
        int next_head = head;
        int next_query = query + kQueries;
        if (next_query >= query_end) {
            next_query = key;
            ++next_head;
        }
        const bool more = next_head <= last_head;
        if (more) load_queries(next_head, next_query, stage ^ 1);
        if constexpr (kHeld) {
            if (begin) {
                held_keys.load(keys, warp_row);
                held_values.load(values, warp_row);
                begin = false;
            }
        }

        const std::uint32_t stage_at =
            stages + static_cast<std::uint32_t>(stage * Tiles::kStageBytes);
#pragma unroll 1
        for (int within = 0; within < kQueries; within += kStep) {
            const int first = query + within;
            // Some pair of the warp's keys and these queries is seen.
            if (first + kStep - 1 < warp_key || first - (warp_key + 16 * kSlabs - 1) >= window)
                continue;
            const std::uint32_t queries =
                stage_at + static_cast<std::uint32_t>(within * Tiles::kPitch);
            const std::uint32_t douts = queries + Tiles::kQueryBytes;
            const std::uint32_t columns = stage_at + 2 * Tiles::kQueryBytes +
                                          static_cast<std::uint32_t>(within * 4 + lane % 4 * 8);
            float p[kSlabs][kStep / 8][4] = {};
            float ds[kSlabs][kStep / 8][4] = {};
            if constexpr (kHeld) {
                multiply_rows<kHeadDim, kStep, kSlabs>(p, held_keys, queries);
                multiply_rows<kHeadDim, kStep, kSlabs>(ds, held_values, douts);
            } else {
                multiply_rows<kHeadDim, kStep, kSlabs>(p, TileFragments<kHeadDim>(keys, warp_row),
                                                       queries);
                multiply_rows<kHeadDim, kStep, kSlabs>(
                    ds, TileFragments<kHeadDim>(values, warp_row), douts);
            }
            float2 lse{}, delta{};
            const auto lse_of = [&](int n, int i) {
                if (i == 0) {
                    lse = load_shared_pair(columns + static_cast<std::uint32_t>(n) * 32);
                    lse = {lse.x * kLog2E, lse.y * kLog2E};
                }
                return i % 2 == 0 ? lse.x : lse.y;
            };
            const auto delta_of = [&](int n, int i) {
                if (i == 0)
                    delta = load_shared_pair(columns + kQueries * 4 +
                                             static_cast<std::uint32_t>(n) * 32);
                return i % 2 == 0 ? delta.x : delta.y;
            };
            const bool partly =
                first < warp_key + 16 * kSlabs - 1 || first + kStep - 1 - warp_key >= window;
            std::uint32_t probabilities[kSlabs][kStep / 16][4];
            std::uint32_t rounded[kSlabs][kStep / 16][4];
#pragma unroll
            for (int slab = 0; slab < kSlabs; ++slab) {
                score_gradients<kStep>(p[slab], ds[slab], scale, lse_of, delta_of);
                if (partly)
                    hide_pairs<kStep, true>(p[slab], ds[slab], warp_key + slab * 16, first, window);
                to_fragments<kStep>(p[slab], probabilities[slab]);
                to_fragments<kStep>(ds[slab], rounded[slab]);
            }
            multiply_columns<kHeadDim, kStep, kColumns, kSlabs>(dv, probabilities, douts, column);
            multiply_columns<kHeadDim, kStep, kColumns, kSlabs>(dk, rounded, queries, column);
        }
        if (!more) break;
        head = next_head;
        query = next_query;
        stage ^= 1;
    }

    // With two warps to a slab each writes its own columns of the rows, which the other may still read.
    if constexpr (Tiles::kHalves > 1) __syncthreads();
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
        const int tile_row = warp_row + slab * 16;
        const std::int64_t at = row + key + tile_row;
        const int valid = key_count - tile_row;
        if (parts > 1) {
            const std::int64_t width = work.kv_heads * work.head_dim;
            const std::int64_t size = work.q_tokens * width;
            float* const sums =
                gradients.part_sums + 2 * part * size + at * width + kv_head * head_dim;
            store_sums<kColumns>(dk[slab], work.scale, sums, width, column, valid, head_dim);
            store_sums<kColumns>(dv[slab], 1.0f, sums + size, width, column, valid, head_dim);
            continue;
        }
        store_rows<kHeadDim, kColumns, kVector>(
            keys, tile_row, column, dk[slab], work.scale, work.scale,
            head_rows(gradients.dk, at, kv_head, head_dim), valid, head_dim);
        store_rows<kHeadDim, kColumns, kVector>(values, tile_row, column, dv[slab], 1.0f, 1.0f,
                                                head_rows(gradients.dv, at, kv_head, head_dim),
                                                valid, head_dim);
    }
}

// --- dq -----------------------------------------------------------------------------------------

// Two slabs of queries share what is read of keys and values; their registers bound the keys at once.
template <int kColumns, int kNumWarps, int kSlabsOfWarp, int kKeysAtOnce, int kBlocksAtOnce>
struct QueryCut {
    static constexpr int kHeadDim = kColumns;
    static constexpr int kWarps = kNumWarps;
    static constexpr int kThreads = kWarps * kWarp;
    static constexpr int kSlabs = kSlabsOfWarp;
    static constexpr int kQueries = kWarps * 16 * kSlabs;
    static constexpr int kKeys = kKeysAtOnce;
    static constexpr int kBlocks = kBlocksAtOnce;
    static constexpr int kPitch = TileLayout<kHeadDim>::kPitch;
    static constexpr int kQueryBytes = kQueries * kPitch;
    static constexpr int kKeyBytes = kKeys * kPitch;
    static constexpr int kBytes = 2 * kQueryBytes + 4 * kKeyBytes;
    static_assert(kBytes <= 99 * 1024);
};
template <int kHeadDim>
using QueryTiles = QueryCut<kHeadDim, 4, kHeadDim <= 128 ? 2 : 1,
                            kHeadDim <= 64    ? 64
                            : kHeadDim <= 128 ? 32
                                              : 16,
                            2>;

// delta of the rows g and g + 8 of each slab: a quad's lanes divide the columns in pieces of 16 bytes. The
// rows of `out` are under way while the tiles come; dout is read from its tile.
template <int kHeadDim, int kSlabs, bool kVector>
__device__ __forceinline__ void find_delta(float (&delta)[kSlabs][2], std::uint32_t douts,
                                           int warp_row, const HeadRows& out, int valid,
                                           int head_dim) {
    using Layout = TileLayout<kHeadDim>;
    constexpr int kPieces = (Layout::kChunks + 3) / 4;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    uint4 pieces[kSlabs][2][kPieces];
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab)
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int i = 0; i < kPieces; ++i) {
                const int r = slab * 16 + half * 8 + lane / 4;
                const int begin = (lane % 4 + i * 4) * 8;
                const Bf16* const from = out.data + r * out.pitch + begin;
                const bool inside = r < valid && begin < head_dim;
                pieces[slab][half][i] = uint4{0, 0, 0, 0};
                if (!inside) continue;
                if constexpr (kVector)
                    pieces[slab][half][i] = *reinterpret_cast<const uint4*>(from);
                else
                    pieces[slab][half][i] = load_8(from, head_dim - begin);
            }
    copy_async_wait<0>();
    __syncthreads();
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float sum = 0;
#pragma unroll
            for (int i = 0; i < kPieces; ++i) {
                const int chunk = lane % 4 + i * 4;
                if (Layout::kChunks % 4 != 0 && chunk >= Layout::kChunks) continue;
                const int r = warp_row + slab * 16 + half * 8 + lane / 4;
                const uint4 dout =
                    load_shared_16(douts + static_cast<std::uint32_t>(Layout::offset(r, chunk)));
                sum = add_products(pieces[slab][half][i], dout, sum);
            }
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            delta[slab][half] = sum + __shfl_xor_sync(0xffffffffu, sum, 2);
        }
}

template <typename Tiles, bool kVector>
__global__ void __launch_bounds__(Tiles::kThreads, Tiles::kBlocks)
    attention_queries_kernel(const __grid_constant__ AttentionWork work,
                             const __grid_constant__ AttentionGradients gradients) {
    constexpr int kHeadDim = Tiles::kHeadDim;
    constexpr int kKeys = Tiles::kKeys;
    constexpr int kQueries = Tiles::kQueries;
    constexpr int kSlabs = Tiles::kSlabs;
    extern __shared__ __align__(128) unsigned char shared_memory[];

    TilePlace place;
    if (!find_longest_tile(work.cu_q, static_cast<int>(work.segments), kQueries,
                           static_cast<int>(blockIdx.y), place))
        return;
    const int head = static_cast<int>(blockIdx.x);
    const int kv_head = head / static_cast<int>(work.heads / work.kv_heads);
    const int head_dim = static_cast<int>(work.head_dim);
    const int row = work.cu_q[place.segment];
    const int length = work.cu_q[place.segment + 1] - row;
    const int first = (place.tiles - 1 - place.tile) * kQueries;  // later ones see more keys
    const int window = window_of(work);
    const int key_end = min(length, first + kQueries);
    const int key_begin = max(0, first - window + 1) / kKeys * kKeys;

    const std::uint32_t queries = shared_address(shared_memory);
    const std::uint32_t douts = queries + Tiles::kQueryBytes;
    const std::uint32_t stages = douts + Tiles::kQueryBytes;
    const HeadRows k = head_rows(work.k, row, kv_head, head_dim);
    const HeadRows v = head_rows(work.v, row, kv_head, head_dim);
    const auto load_keys = [&](int key, int stage) {
        const std::uint32_t to = stages + static_cast<std::uint32_t>(stage * 2 * Tiles::kKeyBytes);
        load_tile<kHeadDim, kKeys, Tiles::kThreads, kVector>(to, {k.data + key * k.pitch, k.pitch},
                                                             length - key, head_dim);
        load_tile<kHeadDim, kKeys, Tiles::kThreads, kVector>(
            to + Tiles::kKeyBytes, {v.data + key * v.pitch, v.pitch}, length - key, head_dim);
        copy_async_commit();
    };
    load_tile<kHeadDim, kQueries, Tiles::kThreads, kVector>(
        queries, head_rows(work.q, row + first, head, head_dim), length - first, head_dim);
    load_tile<kHeadDim, kQueries, Tiles::kThreads, kVector>(
        douts, head_rows(gradients.dout, row + first, head, head_dim), length - first, head_dim);
    load_keys(key_begin, 0);

    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp_row = static_cast<int>(threadIdx.x) / kWarp * 16 * kSlabs;
    const int warp_query = first + warp_row;
    const ScoreScale scale = score_scale(work);
    float lse[kSlabs][2] = {}, delta[kSlabs][2] = {};
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int query = warp_query + slab * 16 + lane / 4 + half * 8;
            if (query >= length) continue;
            const std::int64_t at = static_cast<std::int64_t>(row) + query;
            lse[slab][half] = work.lse[at * work.lse_pitch + head] * kLog2E;
        }
    find_delta<kHeadDim, kSlabs, kVector>(delta, douts, warp_row,
                                          head_rows(work.out, row + warp_query, head, head_dim),
                                          length - warp_query, head_dim);
    if (lane % 4 == 0) {
#pragma unroll
        for (int slab = 0; slab < kSlabs; ++slab)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int query = warp_query + slab * 16 + lane / 4 + half * 8;
                if (query >= length) continue;
                const std::int64_t at = static_cast<std::int64_t>(row) + query;
                gradients.delta[at * work.heads + head] = delta[slab][half];
            }
    }
    float dq[kSlabs][kHeadDim / 8][4] = {};

    int stage = 0;
    for (int key = key_begin; key < key_end; key += kKeys, stage ^= 1) {
        copy_async_wait<0>();
        __syncthreads();
        if (key + kKeys < key_end) load_keys(key + kKeys, stage ^ 1);
        const int last = warp_query + 16 * kSlabs - 1;
        if (key > last || warp_query - (key + kKeys - 1) >= window) continue;  // nothing seen
        const std::uint32_t keys =
            stages + static_cast<std::uint32_t>(stage * 2 * Tiles::kKeyBytes);
        const std::uint32_t values = keys + Tiles::kKeyBytes;
        float p[kSlabs][kKeys / 8][4] = {};
        float ds[kSlabs][kKeys / 8][4] = {};
        multiply_rows<kHeadDim, kKeys, kSlabs>(p, TileFragments<kHeadDim>(queries, warp_row), keys);
        multiply_rows<kHeadDim, kKeys, kSlabs>(ds, TileFragments<kHeadDim>(douts, warp_row),
                                               values);
        const bool partly = key + kKeys - 1 > warp_query || last - key >= window;
        std::uint32_t rounded[kSlabs][kKeys / 16][4];
#pragma unroll
        for (int slab = 0; slab < kSlabs; ++slab) {
            score_gradients<kKeys>(
                p[slab], ds[slab], scale, [&](int, int i) { return lse[slab][i / 2]; },
                [&](int, int i) { return delta[slab][i / 2]; });
            if (partly)
                hide_pairs<kKeys, false>(p[slab], ds[slab], warp_query + slab * 16, key, window);
            to_fragments<kKeys>(ds[slab], rounded[slab]);
        }
        multiply_columns<kHeadDim, kKeys, kHeadDim, kSlabs>(dq, rounded, keys, 0);
    }
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
        const int query = warp_query + slab * 16;
        store_rows<kHeadDim, kHeadDim, kVector>(
            queries, warp_row + slab * 16, 0, dq[slab], work.scale, work.scale,
            head_rows(gradients.dq, static_cast<std::int64_t>(row) + query, head, head_dim),
            length - query, head_dim);
    }
}

template <typename Tiles, bool kVector>
void launch_queries_cut(StreamHandle stream, const AttentionWork& work,
                        const AttentionGradients& gradients) {
    allow_shared(attention_queries_kernel<Tiles, kVector>, Tiles::kBytes);
    const dim3 grid(static_cast<unsigned>(work.heads),
                    static_cast<unsigned>(work.q_tokens / Tiles::kQueries + work.segments));
    attention_queries_kernel<Tiles, kVector>
        <<<grid, Tiles::kThreads, Tiles::kBytes, stream>>>(work, gradients);
    check_launch("attention_backward (dq)");
}

template <typename Tiles, bool kVector>
void launch_keys_cut(StreamHandle stream, const AttentionWork& work,
                     const AttentionGradients& gradients) {
    allow_shared(attention_keys_kernel<Tiles, kVector>, Tiles::kBytes);
    const dim3 grid(static_cast<unsigned>(work.kv_heads * gradients.parts),
                    static_cast<unsigned>(work.q_tokens / Tiles::kKeys + work.segments));
    attention_keys_kernel<Tiles, kVector>
        <<<grid, Tiles::kThreads, Tiles::kBytes, stream>>>(work, gradients);
    check_launch("attention_backward (dk, dv)");
}

template <int kHeadDim, bool kVector>
void launch_attention_backward(StreamHandle stream, const AttentionWork& work,
                               const AttentionGradients& gradients) {
    static_assert(KeyTiles<kHeadDim>::kKeys == kAttentionKeyTile);
    // dq first: it leaves delta for dk and dv.
    launch_queries_cut<QueryTiles<kHeadDim>, kVector>(stream, work, gradients);
    launch_keys_cut<KeyTiles<kHeadDim>, kVector>(stream, work, gradients);
}

}  // namespace garam::cuda
