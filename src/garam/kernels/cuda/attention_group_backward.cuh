// Backward attention with the products of warp groups (sm_90a): the two kernels of attention_backward.cuh,
// the same formulas in the same two walks. In each block one warp group only brings tiles, some stages
// ahead, and the others, of 64 rows each, multiply: while one of them makes probabilities, the tensor cores
// have the products of another.
//
// Floor: 14 flops for each allowed pair and head_dim entry at the rate of the tensor cores.
#pragma once

#include "garam/kernels/cuda/attention_backward.cuh"
#include "garam/kernels/cuda/attention_group_tiles.cuh"

namespace garam::cuda {

// What the warp groups of a block agree on: kGroups multiply, the last one loads. The registers of a
// multiprocessor, divided; a kernel begins with an equal part for each.
template <int kGroups>
struct GroupShares {
    static_assert(kGroups == 2 || kGroups == 3);
    static constexpr int kThreads = (kGroups + 1) * kWarpGroup;
    static constexpr int kLoading = kGroups == 2 ? 40 : 32;
    static constexpr int kMultiplying = kGroups == 2 ? 232 : 160;
};

// A ring of stages in shared memory: `full` when its rows came, `empty` when no product reads them. Each side
// walks over the stages with a ring of its own.
template <int kStages>
class StageRing {
  public:
    static constexpr int kBytes = kStages * 16;
    int stage = 0;

    __device__ __forceinline__ explicit StageRing(std::uint32_t barriers) : barriers_(barriers) {}
    // By one thread of the block.
    __device__ __forceinline__ void begin(int reading_warps) const {
        for (int i = 0; i < kStages; ++i) {
            full(i).begin(kWarpGroup);
            empty(i).begin(reading_warps);
        }
    }
    // The loading side, its whole warp group: load(stage) begins copies, which may take their time.
    template <typename Load>
    __device__ __forceinline__ void fill(const Load& load) {
        empty(stage).wait(parity_ ^ 1);  // of the round before; passes in the first
        load(stage);
        full(stage).arrive_after_copies();
        advance();
    }
    // The reading side, whole warps: wait, then hold or skip, then advance.
    __device__ __forceinline__ void wait() const {
        full(stage).wait(parity_);
        publish_to_products();
    }
    // Products of this stage were begun, and those of the stage held before have ended.
    __device__ __forceinline__ void hold() {
        if (held_ >= 0) release(held_);
        held_ = stage;
    }
    // Nothing of this stage is needed. The stage held is given back too: the loading side may need it for
    // what comes next.
    __device__ __forceinline__ void skip() {
        if (held_ >= 0) {
            wait_products<0>();
            release(held_);
            held_ = -1;
        }
        release(stage);
    }
    __device__ __forceinline__ void advance() {
        if (++stage == kStages) {
            stage = 0;
            parity_ ^= 1;
        }
    }

  private:
    __device__ __forceinline__ StageBarrier full(int of) const {
        return {barriers_ + static_cast<std::uint32_t>(of) * 16};
    }
    __device__ __forceinline__ StageBarrier empty(int of) const {
        return {barriers_ + static_cast<std::uint32_t>(of) * 16 + 8};
    }
    __device__ __forceinline__ void release(int of) const {
        if (threadIdx.x % kWarp == 0) empty(of).arrive();
    }

    std::uint32_t barriers_;
    std::uint32_t parity_ = 0;
    int held_ = -1;  // the stage that products under way read
};

// --- dk, dv -------------------------------------------------------------------------------------

template <int kColumns, int kNumGroups, int kQueriesAtOnce, int kNumStages>
struct GroupKeyCut {
    static constexpr int kHeadDim = kColumns;
    static constexpr int kGroups = kNumGroups;
    static constexpr int kKeys = 64 * kGroups;
    static constexpr int kQueries = kQueriesAtOnce;
    static constexpr int kStages = kNumStages;
    using Shares = GroupShares<kGroups>;
    using KeyTile = StepLayout<kKeys, kHeadDim>;
    using QueryTile = StepLayout<kQueries, kHeadDim>;
    static constexpr int kStageBytes = 2 * QueryTile::kBytes + 2 * kQueries * 4;
    static constexpr int kBytes = 2 * KeyTile::kBytes + kStages * kStageBytes + 16 * (kStages + 1);
    static_assert(kBytes <= 227 * 1024 && kStages >= 3 && kStageBytes % 256 == 0);
};
template <int kHeadDim>
using GroupKeyTiles = GroupKeyCut<kHeadDim, 2, 64, kHeadDim <= 80 ? 5 : 3>;

// Of columns in shared memory, those of this thread's accumulators; `columns`: from its first one on.
template <int kColumns>
__device__ __forceinline__ void load_columns(float2 (&x)[kColumns / 8], std::uint32_t columns) {
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n)
        x[n] = load_shared_pair(columns + static_cast<std::uint32_t>(n) * 32);
}

template <typename Tiles>
__global__ void __launch_bounds__(Tiles::Shares::kThreads, 1)
    attention_group_keys_kernel(const __grid_constant__ AttentionWork work,
                                const __grid_constant__ AttentionGradients gradients) {
#ifdef GARAM_WARP_GROUPS
    using KeyTile = typename Tiles::KeyTile;
    using QueryTile = typename Tiles::QueryTile;
    constexpr int kHeadDim = Tiles::kHeadDim;
    constexpr int kKeys = Tiles::kKeys;
    constexpr int kQueries = Tiles::kQueries;
    extern __shared__ __align__(256) unsigned char group_shared_memory[];

    TilePlace place;
    if (!find_longest_tile(work.cu_q, static_cast<int>(work.segments), kKeys,
                           static_cast<int>(blockIdx.y), place))
        return;
    const int parts = static_cast<int>(gradients.parts);
    const int kv_head = static_cast<int>(blockIdx.x) / parts;
    const int part = static_cast<int>(blockIdx.x) % parts;
    const int part_heads = static_cast<int>(work.heads / work.kv_heads) / parts;
    const int first_head = (kv_head * parts + part) * part_heads;
    const int head_dim = static_cast<int>(work.head_dim);
    const int row = work.cu_q[place.segment];
    const int length = work.cu_q[place.segment + 1] - row;
    const int key = place.tile * kKeys;  // the first keys are seen by the most queries
    const int key_count = min(kKeys, length - key);
    const int window = min(window_of(work), length);
    const int query_end = min(length, key + key_count - 1 + window);

    const std::uint32_t keys = shared_address(group_shared_memory);
    const std::uint32_t values = keys + KeyTile::kBytes;
    const std::uint32_t stages = values + KeyTile::kBytes;
    const std::uint32_t barriers = stages + Tiles::kStages * Tiles::kStageBytes;
    const StageBarrier keys_came{barriers + 16 * Tiles::kStages};
    if (threadIdx.x == 0) {
        StageRing<Tiles::kStages>(barriers).begin(4 * Tiles::kGroups);
        keys_came.begin(kWarpGroup);
    }
    __syncthreads();

    if (threadIdx.x >= Tiles::kGroups * kWarpGroup) {
        give_registers_back<Tiles::Shares::kLoading>();
        const int thread = static_cast<int>(threadIdx.x) % kWarpGroup;
        TileLoader<KeyTile>(work.k.pitch, head_dim, thread)
            .load(keys, head_rows(work.k, row + key, kv_head, head_dim).data, key_count);
        TileLoader<KeyTile>(work.v.pitch, head_dim, thread)
            .load(values, head_rows(work.v, row + key, kv_head, head_dim).data, key_count);
        keys_came.arrive_after_copies();
        const TileLoader<QueryTile> q(work.q.pitch, head_dim, thread);
        const TileLoader<QueryTile> dout(gradients.dout.pitch, head_dim, thread);
        // A half of the threads brings lse, the other delta.
        static_assert(2 * kQueries == kWarpGroup);
        const bool is_lse = thread < kQueries;
        const std::int64_t columns_pitch = is_lse ? work.lse_pitch : work.heads;
        const float* const columns =
            (is_lse ? work.lse : gradients.delta) + (row + thread % kQueries) * columns_pitch;
        StageRing<Tiles::kStages> ring(barriers);
        for (int head = first_head; head < first_head + part_heads; ++head)
            for (int query = key; query < query_end; query += kQueries)
                ring.fill([&](int stage) {
                    const std::uint32_t to =
                        stages + static_cast<std::uint32_t>(stage * Tiles::kStageBytes);
                    const int valid = length - query;
                    q.load(to, head_rows(work.q, row + query, head, head_dim).data, valid);
                    dout.load(to + QueryTile::kBytes,
                              head_rows(gradients.dout, row + query, head, head_dim).data, valid);
                    const bool inside = thread % kQueries < valid;
                    copy_async_4(
                        to + 2 * QueryTile::kBytes + static_cast<std::uint32_t>(thread) * 4,
                        inside ? columns + query * columns_pitch + head : work.lse, inside);
                });
    } else {
        take_registers<Tiles::Shares::kMultiplying>();
        StageRing<Tiles::kStages> ring(barriers);
        const int lane = static_cast<int>(threadIdx.x) % kWarp;
        const int group_row = group_of_thread() * 64;
        const int warp_row = static_cast<int>(threadIdx.x) / kWarp * 16;
        const int group_key = key + group_row;
        const float factor = work.scale * kLog2E;
        const RowsOperand<KeyTile> own_keys(keys, group_row), own_values(values, group_row);
        float dk[kHeadDim / 8][4] = {};
        float dv[kHeadDim / 8][4] = {};
        float p[kQueries / 8][4], ds[kQueries / 8][4];
        std::uint32_t probabilities[kQueries / 16][4], rounded[kQueries / 16][4];
        keys_came.wait(0);  // made known to products by the first stage's wait
        for (int head = 0; head < part_heads; ++head)
            for (int first = key; first < query_end; first += kQueries, ring.advance()) {
                ring.wait();
                // No pair of the group's keys and these queries is seen.
                if (first + kQueries - 1 < group_key || first - (group_key + 63) >= window) {
                    ring.skip();
                    continue;
                }
                const std::uint32_t queries =
                    stages + static_cast<std::uint32_t>(ring.stage * Tiles::kStageBytes);
                const std::uint32_t douts = queries + QueryTile::kBytes;
                const std::uint32_t columns =
                    douts + QueryTile::kBytes + static_cast<std::uint32_t>(lane % 4 * 8);
                begin_products();
                begin_row_product<kHeadDim, kQueries>(p, own_keys, RowsOperand<QueryTile>(queries));
                begin_row_product<kHeadDim, kQueries>(ds, own_values,
                                                      RowsOperand<QueryTile>(douts));
                // The tensor cores keep shared memory busy: what else is read there is asked for early.
                float2 lse[kQueries / 8], delta[kQueries / 8];
                load_columns<kQueries>(lse, columns);
                wait_products<1>();
                pin_registers(p);
                ring.hold();  // products end in their order
#pragma unroll
                for (int n = 0; n < kQueries / 8; ++n) {
                    const float low = -lse[n].x * kLog2E, high = -lse[n].y * kLog2E;
                    p[n][0] = power_of_two(fmaf(p[n][0], factor, low));
                    p[n][1] = power_of_two(fmaf(p[n][1], factor, high));
                    p[n][2] = power_of_two(fmaf(p[n][2], factor, low));
                    p[n][3] = power_of_two(fmaf(p[n][3], factor, high));
                }
                load_columns<kQueries>(delta, columns + kQueries * 4);
                const int warp_key = key + warp_row;
                if (first < group_key + 63 || first + kQueries - 1 - group_key >= window)
                    hide_pairs<kQueries, true>(p, p, warp_key, first, window);
                to_fragments<kQueries>(p, probabilities);
                begin_products();
                begin_column_product<kQueries, kHeadDim>(dv, probabilities,
                                                         ColumnsOperand<QueryTile>(douts));
                wait_products<1>();
                pin_registers(ds);
#pragma unroll
                for (int n = 0; n < kQueries / 8; ++n) {
                    ds[n][0] = p[n][0] * (ds[n][0] - delta[n].x);
                    ds[n][1] = p[n][1] * (ds[n][1] - delta[n].y);
                    ds[n][2] = p[n][2] * (ds[n][2] - delta[n].x);
                    ds[n][3] = p[n][3] * (ds[n][3] - delta[n].y);
                }
                to_fragments<kQueries>(ds, rounded);
                begin_products();
                begin_column_product<kQueries, kHeadDim>(dk, rounded,
                                                         ColumnsOperand<QueryTile>(queries));
            }
        wait_products<0>();
        pin_registers(dk);
        pin_registers(dv);

        const std::int64_t at = row + key + warp_row;
        const int valid = key_count - warp_row;
        if (parts > 1) {
            const std::int64_t width = work.kv_heads * work.head_dim;
            const std::int64_t size = work.q_tokens * width;
            float* const sums =
                gradients.part_sums + 2 * part * size + at * width + kv_head * head_dim;
            store_sums<kHeadDim>(dk, work.scale, sums, width, 0, valid, head_dim);
            store_sums<kHeadDim>(dv, 1.0f, sums + size, width, 0, valid, head_dim);
            return;
        }
        // The group's rows of keys and values are read no more, once all its warps are here.
        group_barrier(1 + group_of_thread());
        store_chunks<KeyTile>(keys, warp_row, dk, work.scale, work.scale,
                              head_rows(gradients.dk, at, kv_head, head_dim), valid, head_dim);
        store_chunks<KeyTile>(values, warp_row, dv, 1.0f, 1.0f,
                              head_rows(gradients.dv, at, kv_head, head_dim), valid, head_dim);
    }
#endif
}

// --- dq -----------------------------------------------------------------------------------------

template <int kColumns, int kNumGroups, int kKeysAtOnce, int kNumStages>
struct GroupQueryCut {
    static constexpr int kHeadDim = kColumns;
    static constexpr int kGroups = kNumGroups;
    static constexpr int kQueries = 64 * kGroups;
    static constexpr int kKeys = kKeysAtOnce;
    static constexpr int kStages = kNumStages;
    using Shares = GroupShares<kGroups>;
    using KeyTile = StepLayout<kKeys, kHeadDim>;
    using QueryTile = StepLayout<kQueries, kHeadDim>;
    static constexpr int kStageBytes = 2 * KeyTile::kBytes;
    static constexpr int kBytes =
        2 * QueryTile::kBytes + kStages * kStageBytes + 16 * (kStages + 1);
    static_assert(kBytes <= 227 * 1024 && kStages >= 3);
};
template <int kHeadDim>
using GroupQueryTiles = GroupQueryCut<kHeadDim, 3, 64, 4>;

// As find_delta: the sum over a quad's lanes of dout (in a tile) * out, of row `tile_row`.
template <typename Layout>
__device__ __forceinline__ float row_delta(std::uint32_t douts, int tile_row, const Bf16* out,
                                           bool inside, int head_dim) {
    const int lane = static_cast<int>(threadIdx.x) % 4;
    const auto low = [](std::uint32_t x) { return __uint_as_float(x << 16); };
    const auto high = [](std::uint32_t x) { return __uint_as_float(x & 0xffff0000u); };
    constexpr int kPieces = (Layout::kChunks + 3) / 4;
    uint4 pieces[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
        const int begin = (lane + i * 4) * 8;
        pieces[i] = inside && begin < head_dim ? *reinterpret_cast<const uint4*>(out + begin)
                                               : uint4{0, 0, 0, 0};
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
        const int chunk = lane + i * 4;
        if (Layout::kChunks % 4 != 0 && chunk >= Layout::kChunks) continue;
        const uint4 y =
            load_shared_16(douts + static_cast<std::uint32_t>(Layout::offset(tile_row, chunk)));
        const std::uint32_t a[4] = {pieces[i].x, pieces[i].y, pieces[i].z, pieces[i].w};
        const std::uint32_t b[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            sum = fmaf(low(a[j]), low(b[j]), sum);
            sum = fmaf(high(a[j]), high(b[j]), sum);
        }
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
}

template <typename Tiles>
__global__ void __launch_bounds__(Tiles::Shares::kThreads, 1)
    attention_group_queries_kernel(const __grid_constant__ AttentionWork work,
                                   const __grid_constant__ AttentionGradients gradients) {
#ifdef GARAM_WARP_GROUPS
    using KeyTile = typename Tiles::KeyTile;
    using QueryTile = typename Tiles::QueryTile;
    constexpr int kHeadDim = Tiles::kHeadDim;
    constexpr int kKeys = Tiles::kKeys;
    constexpr int kQueries = Tiles::kQueries;
    extern __shared__ __align__(256) unsigned char group_shared_memory[];

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

    const std::uint32_t queries = shared_address(group_shared_memory);
    const std::uint32_t douts = queries + QueryTile::kBytes;
    const std::uint32_t stages = douts + QueryTile::kBytes;
    const std::uint32_t barriers = stages + Tiles::kStages * Tiles::kStageBytes;
    const StageBarrier queries_came{barriers + 16 * Tiles::kStages};
    if (threadIdx.x == 0) {
        StageRing<Tiles::kStages>(barriers).begin(4 * Tiles::kGroups);
        queries_came.begin(kWarpGroup);
    }
    __syncthreads();

    if (threadIdx.x >= Tiles::kGroups * kWarpGroup) {
        give_registers_back<Tiles::Shares::kLoading>();
        const int thread = static_cast<int>(threadIdx.x) % kWarpGroup;
        TileLoader<QueryTile>(work.q.pitch, head_dim, thread)
            .load(queries, head_rows(work.q, row + first, head, head_dim).data, length - first);
        TileLoader<QueryTile>(gradients.dout.pitch, head_dim, thread)
            .load(douts, head_rows(gradients.dout, row + first, head, head_dim).data,
                  length - first);
        queries_came.arrive_after_copies();
        const TileLoader<KeyTile> k(work.k.pitch, head_dim, thread);
        const TileLoader<KeyTile> v(work.v.pitch, head_dim, thread);
        StageRing<Tiles::kStages> ring(barriers);
        for (int key = key_begin; key < key_end; key += kKeys)
            ring.fill([&](int stage) {
                const std::uint32_t to =
                    stages + static_cast<std::uint32_t>(stage * Tiles::kStageBytes);
                k.load(to, head_rows(work.k, row + key, kv_head, head_dim).data, length - key);
                v.load(to + KeyTile::kBytes, head_rows(work.v, row + key, kv_head, head_dim).data,
                       length - key);
            });
    } else {
        take_registers<Tiles::Shares::kMultiplying>();
        StageRing<Tiles::kStages> ring(barriers);
        const int lane = static_cast<int>(threadIdx.x) % kWarp;
        const int group_row = group_of_thread() * 64;
        const int warp_row = static_cast<int>(threadIdx.x) / kWarp * 16;
        const int group_query = first + group_row;
        const int warp_query = first + warp_row;
        const float factor = work.scale * kLog2E;
        const RowsOperand<QueryTile> own_queries(queries, group_row), own_douts(douts, group_row);
        float lse[2] = {}, delta[2];
        queries_came.wait(0);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int r = lane / 4 + half * 8;
            const std::int64_t at = static_cast<std::int64_t>(row) + warp_query + r;
            const bool inside = warp_query + r < length;
            delta[half] = row_delta<QueryTile>(douts, warp_row + r,
                                               head_rows(work.out, at, head, head_dim).data, inside,
                                               head_dim);
            if (!inside) continue;
            lse[half] = -work.lse[at * work.lse_pitch + head] * kLog2E;
            if (lane % 4 == 0) gradients.delta[at * work.heads + head] = delta[half];
        }
        float dq[kHeadDim / 8][4] = {};
        pin_registers(dq);  // zero before the first product, not within it
        float p[kKeys / 8][4], ds[kKeys / 8][4];
        std::uint32_t rounded[kKeys / 16][4];
        for (int key = key_begin; key < key_end; key += kKeys, ring.advance()) {
            ring.wait();
            if (key > group_query + 63 || group_query - (key + kKeys - 1) >= window) {
                ring.skip();
                continue;
            }
            const std::uint32_t keys =
                stages + static_cast<std::uint32_t>(ring.stage * Tiles::kStageBytes);
            const std::uint32_t values = keys + KeyTile::kBytes;
            begin_products();
            begin_row_product<kHeadDim, kKeys>(p, own_queries, RowsOperand<KeyTile>(keys));
            begin_row_product<kHeadDim, kKeys>(ds, own_douts, RowsOperand<KeyTile>(values));
            wait_products<1>();
            pin_registers(p);
            ring.hold();  // products end in their order
#pragma unroll
            for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    p[n][i] = power_of_two(fmaf(p[n][i], factor, lse[i / 2]));
            wait_products<0>();
            pin_registers(ds);
#pragma unroll
            for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    ds[n][i] = p[n][i] * (ds[n][i] - delta[i / 2]);
            if (key + kKeys - 1 > group_query || group_query + 63 - key >= window)
                hide_pairs<kKeys, false>(ds, ds, warp_query, key, window);
            to_fragments<kKeys>(ds, rounded);
            begin_products();
            begin_column_product<kKeys, kHeadDim>(dq, rounded, ColumnsOperand<KeyTile>(keys));
        }
        wait_products<0>();
        pin_registers(dq);
        group_barrier(1 + group_of_thread());
        store_chunks<QueryTile>(
            queries, warp_row, dq, work.scale, work.scale,
            head_rows(gradients.dq, static_cast<std::int64_t>(row) + warp_query, head, head_dim),
            length - warp_query, head_dim);
    }
#endif
}

template <typename Tiles>
void launch_group_queries_cut(StreamHandle stream, const AttentionWork& work,
                              const AttentionGradients& gradients) {
    allow_shared(attention_group_queries_kernel<Tiles>, Tiles::kBytes);
    const dim3 grid(static_cast<unsigned>(work.heads),
                    static_cast<unsigned>(work.q_tokens / Tiles::kQueries + work.segments));
    attention_group_queries_kernel<Tiles>
        <<<grid, Tiles::Shares::kThreads, Tiles::kBytes, stream>>>(work, gradients);
    check_launch("attention_backward (dq, warp groups)");
}

template <typename Tiles>
void launch_group_keys_cut(StreamHandle stream, const AttentionWork& work,
                           const AttentionGradients& gradients) {
    allow_shared(attention_group_keys_kernel<Tiles>, Tiles::kBytes);
    const dim3 grid(static_cast<unsigned>(work.kv_heads * gradients.parts),
                    static_cast<unsigned>(work.q_tokens / Tiles::kKeys + work.segments));
    attention_group_keys_kernel<Tiles>
        <<<grid, Tiles::Shares::kThreads, Tiles::kBytes, stream>>>(work, gradients);
    check_launch("attention_backward (dk, dv, warp groups)");
}

template <int kHeadDim>
void launch_group_backward(StreamHandle stream, const AttentionWork& work,
                           const AttentionGradients& gradients) {
    static_assert(GroupKeyTiles<kHeadDim>::kKeys == kAttentionGroupKeyTile);
    // dq first: it leaves delta for dk and dv. Three groups have no registers for more columns, and two are
    // no faster than mma.sync.
    if constexpr (kHeadDim <= 96)
        launch_group_queries_cut<GroupQueryTiles<kHeadDim>>(stream, work, gradients);
    else
        launch_queries_cut<QueryTiles<kHeadDim>, true>(stream, work, gradients);
    launch_group_keys_cut<GroupKeyTiles<kHeadDim>>(stream, work, gradients);
}

}  // namespace garam::cuda
