// Backward attention with the products of warp groups (sm_90a): the two kernels of attention_backward.cuh,
// the same formulas in the same two walks. In each block one warp group only brings tiles, some stages
// ahead, and the others, of 64 rows each, multiply: while one of them makes probabilities, the tensor cores
// have the products of another. Blocks take work by work, so that what stands before and after a work's
// products runs beside the products of other warp groups.
//
// Floor: 14 flops for each allowed pair and head_dim entry at the rate of the tensor cores.
#pragma once

#include "garam/kernels/cuda/attention_backward.cuh"
#include "garam/kernels/cuda/attention_group_work.cuh"

namespace garam::cuda {

// --- dk, dv -------------------------------------------------------------------------------------

// A block's piece of work: keys [key, key + kKeys) of a segment of `length` rows from `row` on, against the
// query heads of `column`: kv_head * parts + part. No length: the end.
struct KeyPiece {
    static constexpr int kBytes = 16;
    int row, length;
    int key;
    int column;

    // The piece `index`, longest first; false: there are not so many.
    template <int kKeys>
    __device__ __forceinline__ bool find(const AttentionWork& work, int columns, int index) {
        TilePlace place;
        if (!find_longest_tile(work.cu_q, static_cast<int>(work.segments), kKeys, index / columns,
                               place))
            return false;
        row = work.cu_q[place.segment];
        length = work.cu_q[place.segment + 1] - row;
        key = place.tile * kKeys;  // the first keys are seen by the most queries
        column = index % columns;
        return true;
    }
    __device__ __forceinline__ void store(std::uint32_t to) const {
        const auto word = [](int x) { return static_cast<unsigned>(x); };
        store_shared_16(to, {word(row), word(length), word(key), word(column)});
    }
    // By all lanes of a warp.
    __device__ __forceinline__ static KeyPiece load(std::uint32_t from) {
        const uint4 a = load_shared_16(from);
        return {same_in_warp(static_cast<int>(a.x)), same_in_warp(static_cast<int>(a.y)),
                same_in_warp(static_cast<int>(a.z)), same_in_warp(static_cast<int>(a.w))};
    }
    // Queries from `key` on that see one of the keys. `window`: no more than length.
    template <int kKeys>
    __device__ __forceinline__ int query_end(int window) const {
        return min(length, min(length, key + kKeys) - 1 + window);
    }
};

template <int kColumns, int kNumGroups, int kQueriesAtOnce, int kNumStages>
struct GroupKeyCut {
    static constexpr int kHeadDim = kColumns;
    static constexpr int kGroups = kNumGroups;
    static constexpr int kKeys = 64 * kGroups;
    static constexpr int kQueries = kQueriesAtOnce;
    using Shares = GroupShares<kGroups>;
    using KeyTile = StepLayout<kKeys, kHeadDim>;
    using QueryTile = StepLayout<kQueries, kHeadDim>;
    static_assert(kNumStages >= 3);
    using Places = WorkPlaces<2 * KeyTile::kBytes, 2 * QueryTile::kBytes + 2 * kQueries * 4,
                              kNumStages, KeyPiece::kBytes>;
};
template <int kHeadDim>
using GroupKeyTiles = GroupKeyCut<kHeadDim, 2, 64,
                                  kHeadDim <= 80   ? 6
                                  : kHeadDim <= 96 ? 5
                                                   : 3>;

// Of columns in shared memory, those of this thread's accumulators; `columns`: from its first one on.
template <int kColumns>
__device__ __forceinline__ void load_columns(float2 (&x)[kColumns / 8], std::uint32_t columns) {
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n)
        x[n] = load_shared_pair(columns + static_cast<std::uint32_t>(n) * 32);
}

template <int kTiles>
__device__ __forceinline__ void clear_registers(float (&x)[kTiles][4]) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            x[n][i] = 0;
    pin_registers(x);  // zero before the first product, not within it
}

template <typename Tiles>
__device__ __forceinline__ void load_group_keys(const AttentionWork& work,
                                                const AttentionGradients& gradients,
                                                const typename Tiles::Places& places) {
    using KeyTile = typename Tiles::KeyTile;
    using QueryTile = typename Tiles::QueryTile;
    constexpr int kQueries = Tiles::kQueries;
    const int parts = static_cast<int>(gradients.parts);
    const int columns = static_cast<int>(work.kv_heads) * parts;
    const int part_heads = static_cast<int>(work.heads) / columns;
    const int head_dim = static_cast<int>(work.head_dim);
    const int thread = static_cast<int>(threadIdx.x) % kWarpGroup;
    const TileLoader<KeyTile> k(work.k.pitch, head_dim, thread);
    const TileLoader<KeyTile> v(work.v.pitch, head_dim, thread);
    const TileLoader<QueryTile> q(work.q.pitch, head_dim, thread);
    const TileLoader<QueryTile> dout(gradients.dout.pitch, head_dim, thread);
    // A half of the threads brings lse, the other delta.
    static_assert(2 * kQueries == kWarpGroup);
    const bool is_lse = thread < kQueries;
    const std::int64_t sums_pitch = is_lse ? work.lse_pitch : work.heads;
    const float* const sums = is_lse ? work.lse : gradients.delta;

    auto slots = places.slots();
    auto ring = places.stages();
    for (int round = 0;; ++round) {
        KeyPiece piece{};
        const bool found = piece.find<Tiles::kKeys>(work, columns, dealt_work(round));
        const int kv_head = piece.column / parts;
        const int valid_keys = piece.length - piece.key;
        slots.fill([&](int slot) {
            if (thread == 0) {
                piece.store(places.item(slot));
                slots.stored();
            }
            if (!found) return;
            const std::uint32_t to = places.slot(slot);
            const std::int64_t at = piece.row + piece.key;
            k.load(to, head_rows(work.k, at, kv_head, head_dim).data, valid_keys);
            v.load(to + KeyTile::kBytes, head_rows(work.v, at, kv_head, head_dim).data, valid_keys);
        });
        if (!found) break;

        const int query_end = piece.query_end<Tiles::kKeys>(min(window_of(work), piece.length));
        const int first_head = piece.column * part_heads;
        for (int head = first_head; head < first_head + part_heads; ++head)
            for (int query = piece.key; query < query_end; query += kQueries)
                ring.fill([&](int stage) {
                    const std::uint32_t to = places.stage(stage);
                    const std::int64_t at = piece.row + query;
                    const int valid = piece.length - query;
                    q.load(to, head_rows(work.q, at, head, head_dim).data, valid);
                    dout.load(to + QueryTile::kBytes,
                              head_rows(gradients.dout, at, head, head_dim).data, valid);
                    const bool inside = thread % kQueries < valid;
                    copy_async_4(
                        to + 2 * QueryTile::kBytes + static_cast<std::uint32_t>(thread) * 4,
                        inside ? sums + (at + thread % kQueries) * sums_pitch + head : work.lse,
                        inside);
                });
    }
}

template <typename Tiles>
__device__ __forceinline__ void multiply_group_keys(const AttentionWork& work,
                                                    const AttentionGradients& gradients,
                                                    const typename Tiles::Places& places) {
    using KeyTile = typename Tiles::KeyTile;
    using QueryTile = typename Tiles::QueryTile;
    constexpr int kHeadDim = Tiles::kHeadDim;
    constexpr int kQueries = Tiles::kQueries;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int group_row = group_of_thread() * 64;
    const int warp_row = static_cast<int>(threadIdx.x) / kWarp * 16;
    const int parts = static_cast<int>(gradients.parts);
    const int part_heads = static_cast<int>(work.heads / work.kv_heads) / parts;
    const int head_dim = static_cast<int>(work.head_dim);
    const float factor = work.scale * kLog2E;
    float dk[kHeadDim / 8][4], dv[kHeadDim / 8][4];
    float p[kQueries / 8][4], ds[kQueries / 8][4];
    std::uint32_t probabilities[kQueries / 16][4], rounded[kQueries / 16][4];

    auto ring = places.stages();
    for (auto slots = places.slots();; slots.advance()) {
        slots.wait();
        const KeyPiece piece = KeyPiece::load(places.item(slots.stage));
        if (piece.length == 0) break;
        const int window = min(window_of(work), piece.length);
        const int query_end = piece.query_end<Tiles::kKeys>(window);
        const int group_key = piece.key + group_row;
        const std::uint32_t keys = same_in_warp(places.slot(slots.stage));
        const std::uint32_t values = keys + KeyTile::kBytes;
        const RowsOperand<KeyTile> own_keys(keys, group_row), own_values(values, group_row);
        clear_registers(dk);
        clear_registers(dv);
        for (int head = 0; head < part_heads; ++head)
            for (int first = piece.key; first < query_end; first += kQueries, ring.advance()) {
                ring.wait();
                // No pair of the group's keys and these queries is seen.
                if (first + kQueries - 1 < group_key || first - (group_key + 63) >= window) {
                    ring.skip();
                    continue;
                }
                const std::uint32_t queries = places.stage(ring.stage);
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
                const int warp_key = piece.key + warp_row;
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
        ring.drop();
        pin_registers(dk);
        pin_registers(dv);

        const std::int64_t at = piece.row + piece.key + warp_row;
        const int valid = min(Tiles::kKeys, piece.length - piece.key) - warp_row;
        const int kv_head = piece.column / parts;
        if (parts > 1) {
            const std::int64_t width = work.kv_heads * work.head_dim;
            const std::int64_t size = work.q_tokens * width;
            float* const sums = gradients.part_sums + 2 * (piece.column % parts) * size +
                                at * width + kv_head * head_dim;
            store_sums<kHeadDim>(dk, work.scale, sums, width, 0, valid, head_dim);
            store_sums<kHeadDim>(dv, 1.0f, sums + size, width, 0, valid, head_dim);
        } else {
            // The group's rows of keys and values are read no more, once all its warps are here.
            group_barrier(1 + group_of_thread());
            store_chunks<KeyTile>(keys, warp_row, dk, work.scale,
                                  head_rows(gradients.dk, at, kv_head, head_dim), valid, head_dim);
            store_chunks<KeyTile>(values, warp_row, dv, 1.0f,
                                  head_rows(gradients.dv, at, kv_head, head_dim), valid, head_dim);
        }
        __syncwarp();
        slots.release(slots.stage);
    }
}

template <typename Tiles>
__global__ void __launch_bounds__(Tiles::Shares::kThreads, 1)
    attention_group_keys_kernel(const __grid_constant__ AttentionWork work,
                                const __grid_constant__ AttentionGradients gradients) {
#ifdef GARAM_WARP_GROUPS
    extern __shared__ __align__(256) unsigned char group_shared_memory[];
    const typename Tiles::Places places{shared_address(group_shared_memory)};
    places.begin_barriers(4 * Tiles::kGroups);
    Tiles::Shares::divide([&] { load_group_keys<Tiles>(work, gradients, places); },
                          [&] { multiply_group_keys<Tiles>(work, gradients, places); });
#endif
}

// --- dq -----------------------------------------------------------------------------------------

// Rows are the query heads that share a key head, of one query after the other, as in the forward.
template <int kColumns, int kNumGroups, int kKeysAtOnce, int kNumStages>
struct GroupQueryCut {
    static constexpr int kHeadDim = kColumns;
    static constexpr int kGroups = kNumGroups;
    static constexpr int kRows = 64 * kGroups;
    static constexpr int kKeys = kKeysAtOnce;
    using Shares = GroupShares<kGroups>;
    using KeyTile = StepLayout<kKeys, kHeadDim>;
    using QueryTile = StepLayout<kRows, kHeadDim>;
    static_assert(kNumStages >= 3);
    using Places =
        WorkPlaces<2 * QueryTile::kBytes, 2 * KeyTile::kBytes, kNumStages, PackedRows::kBytes>;
};
template <int kHeadDim>
using GroupQueryTiles = GroupQueryCut<kHeadDim, 3, 64, kHeadDim <= 80 ? 5 : 3>;

// What a thread needs of its rows g and g + 8 of a piece besides tiles. It asks memory for lse and its part
// of `out` while the work before is stored, and makes delta, as find_delta does, once dout is there.
template <typename Layout>
struct QueryRowsAhead {
    static constexpr int kPieces = (Layout::kChunks + 3) / 4;
    int queries[2];
    float lse[2];  // base 2, negative
    uint4 out[2][kPieces];

    __device__ __forceinline__ void load(const AttentionWork& work, const PackedRows& item,
                                         int warp_row, int group) {
        const int lane = static_cast<int>(threadIdx.x) % kWarp;
        const int head_dim = static_cast<int>(work.head_dim);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = item.first_row + warp_row + lane / 4 + half * 8;
            const bool inside = row < item.rows;
            const int query = queries[half] = row / group;
            const std::int64_t at = static_cast<std::int64_t>(item.q_row) + query;
            const int head = item.kv_head * group + row - query * group;
            lse[half] = inside ? -work.lse[at * work.lse_pitch + head] * kLog2E : 0.0f;
            const Bf16* const from = head_rows(work.out, at, head, head_dim).data;
#pragma unroll
            for (int i = 0; i < kPieces; ++i) {
                const int begin = (lane % 4 + i * 4) * 8;
                out[half][i] = inside && begin < head_dim
                                   ? *reinterpret_cast<const uint4*>(from + begin)
                                   : uint4{0, 0, 0, 0};
            }
        }
    }
    // The sum over a quad's lanes of dout (in a tile) * out, of row `tile_row`.
    __device__ __forceinline__ float delta(int half, std::uint32_t douts, int tile_row) const {
        const int lane = static_cast<int>(threadIdx.x) % 4;
        float sum = 0;
#pragma unroll
        for (int i = 0; i < kPieces; ++i) {
            const int chunk = lane + i * 4;
            if (Layout::kChunks % 4 != 0 && chunk >= Layout::kChunks) continue;
            const uint4 dout =
                load_shared_16(douts + static_cast<std::uint32_t>(Layout::offset(tile_row, chunk)));
            sum = add_products(out[half][i], dout, sum);
        }
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
    }
};

template <typename Tiles>
__device__ __forceinline__ void load_group_queries(const AttentionWork& work,
                                                   const AttentionGradients& gradients,
                                                   const typename Tiles::Places& places) {
    using KeyTile = typename Tiles::KeyTile;
    using QueryTile = typename Tiles::QueryTile;
    const int head_dim = static_cast<int>(work.head_dim);
    const int group = static_cast<int>(work.heads / work.kv_heads);
    const int thread = static_cast<int>(threadIdx.x) % kWarpGroup;
    const TileLoader<QueryTile> q(work.q.pitch, head_dim, thread);
    const TileLoader<QueryTile> dout(gradients.dout.pitch, head_dim, thread);
    const TileLoader<KeyTile> k(work.k.pitch, head_dim, thread);
    const TileLoader<KeyTile> v(work.v.pitch, head_dim, thread);
    auto slots = places.slots();
    auto ring = places.stages();
    for (int round = 0;; ++round) {
        PackedRows item{};
        int row = 0;
        const bool found =
            item.find<Tiles::kRows, Tiles::kKeys>(work, work.cu_q, dealt_work(round), row);
        slots.fill([&](int slot) {
            if (thread == 0) {
                item.store(places.item(slot));
                slots.stored();
            }
            if (!found) return;
            const std::uint32_t to = places.slot(slot);
            item.bring(q, to, work.q, group, head_dim);
            item.bring(dout, to + QueryTile::kBytes, gradients.dout, group, head_dim);
        });
        if (!found) break;

        const int length = item.rows / group;
        for (int tile = item.begin; tile < item.end; ++tile)
            ring.fill([&](int stage) {
                const std::uint32_t to = places.stage(stage);
                const int key = tile * Tiles::kKeys;
                k.load(to, head_rows(work.k, row + key, item.kv_head, head_dim).data, length - key);
                v.load(to + KeyTile::kBytes,
                       head_rows(work.v, row + key, item.kv_head, head_dim).data, length - key);
            });
    }
}

template <typename Tiles>
__device__ __forceinline__ void multiply_group_queries(const AttentionWork& work,
                                                       const AttentionGradients& gradients,
                                                       const typename Tiles::Places& places) {
    using KeyTile = typename Tiles::KeyTile;
    using QueryTile = typename Tiles::QueryTile;
    constexpr int kHeadDim = Tiles::kHeadDim;
    constexpr int kKeys = Tiles::kKeys;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int own_group = group_of_thread();
    const int warp_row = static_cast<int>(threadIdx.x) / kWarp * 16;
    const int group = static_cast<int>(work.heads / work.kv_heads);
    const int head_dim = static_cast<int>(work.head_dim);
    const int window = window_of(work);
    const float factor = work.scale * kLog2E;
    float dq[kHeadDim / 8][4];
    float p[kKeys / 8][4], ds[kKeys / 8][4];
    std::uint32_t rounded[kKeys / 16][4];

    auto slots = places.slots();
    auto ring = places.stages();
    slots.wait();
    PackedRows item = PackedRows::load(places.item(slots.stage));
    QueryRowsAhead<QueryTile> ahead;
    ahead.load(work, item, warp_row, group);
    while (item.rows != 0) {
        const int slot = slots.stage;
        const std::uint32_t queries = same_in_warp(places.slot(slot));
        const std::uint32_t douts = queries + QueryTile::kBytes;
        const float lse[2] = {ahead.lse[0], ahead.lse[1]};
        const int own_queries[2] = {ahead.queries[0], ahead.queries[1]};
        float delta[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int tile_row = warp_row + lane / 4 + half * 8;
            delta[half] = ahead.delta(half, douts, tile_row);
            const int row = item.first_row + tile_row;
            if (lane % 4 == 0 && row < item.rows) {
                const std::int64_t at = static_cast<std::int64_t>(item.q_row) + own_queries[half];
                const int head = item.kv_head * group + row - own_queries[half] * group;
                gradients.delta[at * work.heads + head] = delta[half];
            }
        }

        // The keys that the warp group sees.
        const int group_row = item.first_row + own_group * 64;
        const int first = same_in_warp(group_row / group);
        const int last = same_in_warp((min(group_row + 64, item.rows) - 1) / group);
        const bool idle = group_row >= item.rows;
        const int begin = idle ? item.end : max(0, first - window + 1) / kKeys;
        const int end = idle ? item.end : last / kKeys + 1;
        const RowsOperand<QueryTile> rows_of_q(queries, own_group * 64);
        const RowsOperand<QueryTile> rows_of_dout(douts, own_group * 64);
        clear_registers(dq);
        int tile = item.begin;
        for (; tile < begin; ++tile, ring.advance()) {
            ring.wait();
            ring.skip();
        }
        for (; tile < end; ++tile, ring.advance()) {
            ring.wait();
            const int key = tile * kKeys;
            const std::uint32_t keys = same_in_warp(places.stage(ring.stage));
            const std::uint32_t values = keys + KeyTile::kBytes;
            begin_products();
            begin_row_product<kHeadDim, kKeys>(p, rows_of_q, RowsOperand<KeyTile>(keys));
            begin_row_product<kHeadDim, kKeys>(ds, rows_of_dout, RowsOperand<KeyTile>(values));
            wait_products<1>();
            pin_registers(p);
            ring.hold();  // products end in their order
#pragma unroll
            for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    p[n][i] = power_of_two(fmaf(p[n][i], factor, lse[i / 2]));
            // Of p and here: a branch keeps the compiler from moving the wait for dP ahead of the
            // exponents.
            if (key + kKeys - 1 > first || last - key >= window) {
#pragma unroll
                for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const int distance =
                            own_queries[i / 2] - (key + n * 8 + lane % 4 * 2 + i % 2);
                        if (distance < 0 || distance >= window) p[n][i] = 0;
                    }
            }
            wait_products<0>();
            pin_registers(ds);
#pragma unroll
            for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    ds[n][i] = p[n][i] * (ds[n][i] - delta[i / 2]);
            to_fragments<kKeys>(ds, rounded);
            begin_products();
            begin_column_product<kKeys, kHeadDim>(dq, rounded, ColumnsOperand<KeyTile>(keys));
        }
        ring.drop();
        pin_registers(dq);
        for (; tile < item.end; ++tile, ring.advance()) {
            ring.wait();
            ring.skip();
        }

        // All stages of this work are given back: the loading side gets on to the next slot.
        slots.advance();
        slots.wait();
        const PackedRows next = PackedRows::load(places.item(slots.stage));
        ahead.load(work, next, warp_row, group);
        // No product reads the group's rows any more, once all its warps are here.
        group_barrier(1 + own_group);
        item.store_chunks<QueryTile>(queries, warp_row, dq, work.scale, work.scale, gradients.dq,
                                     group, head_dim);
        __syncwarp();
        slots.release(slot);
        item = next;
    }
}

template <typename Tiles>
__global__ void __launch_bounds__(Tiles::Shares::kThreads, 1)
    attention_group_queries_kernel(const __grid_constant__ AttentionWork work,
                                   const __grid_constant__ AttentionGradients gradients) {
#ifdef GARAM_WARP_GROUPS
    extern __shared__ __align__(256) unsigned char group_shared_memory[];
    const typename Tiles::Places places{shared_address(group_shared_memory)};
    places.begin_barriers(4 * Tiles::kGroups);
    Tiles::Shares::divide([&] { load_group_queries<Tiles>(work, gradients, places); },
                          [&] { multiply_group_queries<Tiles>(work, gradients, places); });
#endif
}

template <typename Tiles>
void launch_group_queries_cut(StreamHandle stream, const AttentionWork& work,
                              const AttentionGradients& gradients) {
    allow_shared(attention_group_queries_kernel<Tiles>, Tiles::Places::kBytes);
    const std::int64_t items = packed_pieces(work, Tiles::kRows);
    attention_group_queries_kernel<Tiles>
        <<<blocks_for_work(work, items), Tiles::Shares::kThreads, Tiles::Places::kBytes, stream>>>(
            work, gradients);
    check_launch("attention_backward (dq, warp groups)");
}

template <typename Tiles>
void launch_group_keys_cut(StreamHandle stream, const AttentionWork& work,
                           const AttentionGradients& gradients) {
    allow_shared(attention_group_keys_kernel<Tiles>, Tiles::Places::kBytes);
    const std::int64_t items =
        (work.q_tokens / Tiles::kKeys + work.segments) * work.kv_heads * gradients.parts;
    attention_group_keys_kernel<Tiles>
        <<<blocks_for_work(work, items), Tiles::Shares::kThreads, Tiles::Places::kBytes, stream>>>(
            work, gradients);
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
