// Forward attention with the products of warp groups (sm_90a), as attention_forward.cuh otherwise. The
// rows of a block are the query heads that share a key head, of one query after the other: all of them
// see nearly the same keys, so that each tile of keys is loaded once for all and little of it is hidden.
//
// A block is there for the whole grid's time and takes work by work. One warp group only loads, ahead of
// the others; these have 64 rows each, whose sums stay in their registers. The scores of the next keys
// and the sums of these are one after the other under way while a warp group makes probabilities, and the
// warp groups drift apart, so that the tensor cores find the products of one while another has none.
//
// Floor: 4 flops for each allowed pair and head_dim entry at the rate of the tensor cores; 16 exponents a
// cycle, which take 0.8 of that time at head_dim 80; keys and values once for each block's rows from L2.
#pragma once

#include "garam/kernels/cuda/attention_group_work.cuh"

namespace garam::cuda {

// kOverlapping: the sums of a tile go on while the next tile's probabilities are made. kTakingTurns: warp
// groups begin their products one after the other, in a fixed order.
template <int kColumns, int kNumGroups, int kKeysAtOnce, int kNumStages, bool kOverlapping = true,
          bool kTakingTurns = false>
struct GroupForwardCut {
    static constexpr int kHeadDim = kColumns;
    static constexpr int kGroups = kNumGroups;
    using Shares = GroupShares<kGroups>;
    static constexpr int kThreads = Shares::kThreads;
    static constexpr int kRows = 64 * kGroups;
    static constexpr int kKeys = kKeysAtOnce;
    static constexpr int kStages = kNumStages;
    static constexpr bool kOverlap = kOverlapping;
    static constexpr bool kInTurn = kTakingTurns;
    using QueryTile = StepLayout<kRows, kHeadDim>;
    using KeyTile = StepLayout<kKeys, kHeadDim>;
    static constexpr int kStageBytes = 2 * KeyTile::kBytes;
    static constexpr int kQueryBytes = 2 * QueryTile::kBytes;  // of this work and the next one
    static constexpr int kBarrierBytes = 32 + 32 * kStages;
    static constexpr int kBytes =
        kQueryBytes + kStages * kStageBytes + 2 * PackedRows::kBytes + kBarrierBytes;
    static_assert(kStages >= 2 && kBytes <= 227 * 1024);
};
// Three warp groups have 160 registers a thread, two have 232.
template <int kHeadDim>
using GroupForwardTiles = GroupForwardCut<kHeadDim, kHeadDim <= 96 ? 3 : 2,
                                          kHeadDim <= 80   ? 96
                                          : kHeadDim <= 96 ? 80
                                                           : 128,
                                          kHeadDim <= 80   ? 4
                                          : kHeadDim <= 96 ? 3
                                                           : 2,
                                          true, true>;

// Where things lie in a block's shared memory.
template <typename Tiles>
struct GroupForwardPlaces {
    std::uint32_t begin;
    __device__ __forceinline__ std::uint32_t queries(int slot) const {
        return begin + static_cast<std::uint32_t>(slot * Tiles::QueryTile::kBytes);
    }
    __device__ __forceinline__ std::uint32_t keys(int stage) const {
        return begin + static_cast<std::uint32_t>(Tiles::kQueryBytes + stage * Tiles::kStageBytes);
    }
    __device__ __forceinline__ std::uint32_t values(int stage) const {
        return keys(stage) + Tiles::KeyTile::kBytes;
    }
    __device__ __forceinline__ std::uint32_t item(int slot) const {
        return keys(Tiles::kStages) + static_cast<std::uint32_t>(slot * PackedRows::kBytes);
    }
    // Filled by the loading warps, emptied by the multiplying ones.
    __device__ __forceinline__ StageBarrier barrier(int index) const {
        return {item(2) + static_cast<std::uint32_t>(index * 8)};
    }
    __device__ __forceinline__ StageBarrier queries_full(int slot) const { return barrier(slot); }
    __device__ __forceinline__ StageBarrier queries_empty(int slot) const {
        return barrier(2 + slot);
    }
    __device__ __forceinline__ StageBarrier keys_full(int stage) const {
        return barrier(4 + 4 * stage);
    }
    __device__ __forceinline__ StageBarrier keys_empty(int stage) const {
        return barrier(5 + 4 * stage);
    }
    __device__ __forceinline__ StageBarrier values_full(int stage) const {
        return barrier(6 + 4 * stage);
    }
    __device__ __forceinline__ StageBarrier values_empty(int stage) const {
        return barrier(7 + 4 * stage);
    }
};

template <typename Tiles>
__device__ __forceinline__ void load_group_forward(const AttentionWork& work,
                                                   const GroupForwardPlaces<Tiles>& places) {
    using KeyTile = typename Tiles::KeyTile;
    const int head_dim = static_cast<int>(work.head_dim);
    const int group = static_cast<int>(work.heads / work.kv_heads);

    const int thread = static_cast<int>(threadIdx.x) % kWarpGroup;
    const TileLoader<typename Tiles::QueryTile> queries(work.q.pitch, head_dim, thread);
    const TileLoader<KeyTile> keys(work.k.pitch, head_dim, thread);
    const TileLoader<KeyTile> values(work.v.pitch, head_dim, thread);
    StageTurn<Tiles::kStages> turn;
    for (int round = 0;; ++round) {
        const int slot = round % 2;
        PackedRows item{};
        int k_row = 0;
        const bool found =
            item.find<Tiles::kRows, Tiles::kKeys>(work, work.cu_k, dealt_work(round), k_row);
        places.queries_empty(slot).wait(static_cast<std::uint32_t>(round / 2 % 2) ^ 1);
        if (thread == 0) {
            item.store(places.item(slot));
            places.queries_full(slot).arrive();
        }
        if (found) item.bring(queries, places.queries(slot), work.q, group, head_dim);
        places.queries_full(slot).arrive_after_copies();
        if (!found) break;

        const int rows = item.behind + item.rows / group;
        const HeadRows k = head_rows(work.k, k_row, item.kv_head, head_dim);
        const HeadRows v = head_rows(work.v, k_row, item.kv_head, head_dim);
        for (int tile = item.begin; tile < item.end; ++tile) {
            const int key = tile * Tiles::kKeys;
            places.keys_empty(turn.stage).wait(turn.parity ^ 1);
            keys.load(places.keys(turn.stage), k.data + key * k.pitch, rows - key);
            places.keys_full(turn.stage).arrive_after_copies();
            places.values_empty(turn.stage).wait(turn.parity ^ 1);
            values.load(places.values(turn.stage), v.data + key * v.pitch, rows - key);
            places.values_full(turn.stage).arrive_after_copies();
            turn.advance();
        }
    }
}

// Warp groups that begin their products in turn: each takes its turn as often as the others.
template <int kGroups, bool kInTurn>
struct GroupTurns {
    int own;
    __device__ __forceinline__ explicit GroupTurns(int group) : own(group) {
        if (own == kGroups - 1) pass();  // the first one begins
    }
    __device__ __forceinline__ void take() const {
        if constexpr (kInTurn)
            asm volatile("bar.sync %0, 256;\n" ::"r"(kFirstName + own) : "memory");
    }
    __device__ __forceinline__ void pass() const {
        if constexpr (kInTurn)
            asm volatile("bar.arrive %0, 256;\n" ::"r"(kFirstName + (own + 1) % kGroups)
                         : "memory");
    }
    // No turn is left over.
    __device__ __forceinline__ void end() const {
        if (own == 0) take();
    }

  private:
    static constexpr int kFirstName = 1 + kGroups;  // the groups' own barriers come first
};

// What a thread keeps of its rows g and g + 8, in base 2.
struct GroupSoftmax {
    // Far below all scores, so that a row that has seen no key stays at zero.
    float offsets[2] = {-1e30f, -1e30f};  // maxima of the scores so far
    float totals[2] = {};                 // this thread's part
    float shrinks[2];                     // what the last tile does to older sums

    // Scores become 2^(score - maximum), in place. Where the maximum stays, older sums keep their bits:
    // keys that a row does not see leave no trace.
    template <int kTiles>
    __device__ __forceinline__ void soften(float (&scores)[kTiles][4], float factor) {
        constexpr unsigned kAll = 0xffffffffu;
        float maxima[2][2];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            maxima[i / 2][i % 2] = scores[0][i];
#pragma unroll
        for (int n = 1; n < kTiles; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                maxima[i / 2][i % 2] = fmaxf(maxima[i / 2][i % 2], scores[n][i]);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float maximum = fmaxf(maxima[half][0], maxima[half][1]);
            maximum = fmaxf(maximum, __shfl_xor_sync(kAll, maximum, 1));
            maximum = fmaxf(maximum, __shfl_xor_sync(kAll, maximum, 2));
            const float offset = fmaxf(offsets[half], maximum * factor);
            shrinks[half] = power_of_two(offsets[half] - offset);
            offsets[half] = offset;
        }
        float parts[2] = {};
#pragma unroll
        for (int n = 0; n < kTiles; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                scores[n][i] = power_of_two(fmaf(scores[n][i], factor, -offsets[i / 2]));
                parts[i / 2] += scores[n][i];
            }
#pragma unroll
        for (int half = 0; half < 2; ++half)
            totals[half] = fmaf(totals[half], shrinks[half], parts[half]);
    }
};

template <int kSteps>
__device__ __forceinline__ void pin_operands(std::uint32_t (&x)[kSteps][4]) {
#pragma unroll
    for (int n = 0; n < kSteps; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            asm volatile("" : "+r"(x[n][i])::"memory");
}

// A warp group's sums and softmax to out and lse.
template <typename Tiles>
__device__ __forceinline__ void store_group_forward(const AttentionWork& work,
                                                    const GroupForwardPlaces<Tiles>& places,
                                                    int slot,
                                                    const float (&sums)[Tiles::kHeadDim / 8][4],
                                                    const GroupSoftmax& softmax) {
    using QueryTile = typename Tiles::QueryTile;
    const PackedRows item = PackedRows::load(places.item(slot));
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp_row = static_cast<int>(threadIdx.x) / kWarp * 16;
    const int head_dim = static_cast<int>(work.head_dim);
    const int group = static_cast<int>(work.heads / work.kv_heads);

    float inverse[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float total = softmax.totals[half];
        total += __shfl_xor_sync(0xffffffffu, total, 1);
        total += __shfl_xor_sync(0xffffffffu, total, 2);
        inverse[half] = 1.0f / total;
        const int row = item.first_row + warp_row + lane / 4 + half * 8;
        if (lane % 4 == 0 && row < item.rows) {
            const int query = row / group;
            const int head = item.kv_head * group + row % group;
            work.lse[static_cast<std::int64_t>(item.q_row + query) * work.lse_pitch + head] =
                softmax.offsets[half] * kLn2 + logf(total);
        }
    }
    // No product reads the queries any more: out leaves through their place.
    group_barrier(1 + static_cast<int>(threadIdx.x) / kWarpGroup);
    item.store_chunks<QueryTile>(places.queries(slot), warp_row, sums, inverse[0], inverse[1],
                                 work.out, group, head_dim);
}

template <typename Tiles>
__device__ __forceinline__ void multiply_group_forward(const AttentionWork& work,
                                                       const GroupForwardPlaces<Tiles>& places) {
#ifdef GARAM_WARP_GROUPS
    using QueryTile = typename Tiles::QueryTile;
    using KeyTile = typename Tiles::KeyTile;
    constexpr int kHeadDim = Tiles::kHeadDim;
    constexpr int kKeys = Tiles::kKeys;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int own_group = group_of_thread();
    const int warp_row = static_cast<int>(threadIdx.x) / kWarp * 16;
    const int group = static_cast<int>(work.heads / work.kv_heads);
    const int window = window_of(work);
    const ScoreScale scale = score_scale(work);
    // What copies brought is for products.
    const auto wait_for = [](StageBarrier full, std::uint32_t parity) {
        full.wait(parity);
        publish_to_products();
    };
    const auto release = [&](StageBarrier empty) {
        if (lane == 0) empty.arrive();
    };
    GroupTurns<Tiles::kGroups, Tiles::kInTurn> turns(own_group);

    StageTurn<Tiles::kStages> turn;
    for (int round = 0;; ++round) {
        const int slot = round % 2;
        places.queries_full(slot).wait(static_cast<std::uint32_t>(round / 2 % 2));
        const PackedRows item = PackedRows::load(places.item(slot));
        if (item.rows == 0) break;
        // The keys that the warp group sees.
        const int group_row = item.first_row + own_group * 64;
        const int first = same_in_warp(item.behind + group_row / group);
        const int last = same_in_warp(item.behind + (min(group_row + 64, item.rows) - 1) / group);
        const bool idle = group_row >= item.rows;
        int tile = item.begin;
        // In turn, all have the same number of tiles.
        const int begin = Tiles::kInTurn ? tile
                          : idle         ? item.end
                                         : max(0, first - window + 1) / kKeys;
        const int end = Tiles::kInTurn || idle ? item.end : last / kKeys + 1;
        const int item_end = item.end;

        const auto skip = [&] {
            places.keys_full(turn.stage).wait(turn.parity);
            places.values_full(turn.stage).wait(turn.parity);
            __syncwarp();  // all lanes have waited
            release(places.keys_empty(turn.stage));
            release(places.values_empty(turn.stage));
            turn.advance();
        };
        for (; tile < begin; ++tile)
            skip();

        if (tile < end) {
            float scores[kKeys / 8][4];
            float sums[kHeadDim / 8][4] = {};
            std::uint32_t probabilities[kKeys / 16][4];
            GroupSoftmax softmax;
            const std::uint32_t queries =
                places.queries(slot) +
                static_cast<std::uint32_t>(QueryTile::offset(own_group * 64, 0));
            const auto begin_scores = [&](std::uint32_t keys) {
                begin_row_product<kHeadDim, kKeys>(scores,
                                                   RowsOperand<QueryTile>(same_in_warp(queries)),
                                                   RowsOperand<KeyTile>(keys));
            };
            const auto begin_sums = [&](std::uint32_t values) {
                begin_column_product<kKeys, kHeadDim>(sums, probabilities,
                                                      ColumnsOperand<KeyTile>(values));
            };
            const auto soften = [&](int key) {
                if (scale.inner != 0) {
#pragma unroll
                    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
                        for (int i = 0; i < 4; ++i)
                            scores[n][i] = bounded(scores[n][i] * scale.inner);
                }
                const auto hide = [&](int offset, auto is_hidden) {
                    const uint4 again = load_shared_16(places.item(slot));
                    const int row = static_cast<int>(again.x) + warp_row + lane / 4;
                    const int column = key + lane % 4 * 2 + offset - static_cast<int>(again.w);
                    const int distances[2] = {row / group - column, (row + 8) / group - column};
#pragma unroll
                    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
                        for (int i = 0; i < 4; ++i)
                            if (is_hidden(distances[i / 2], n * 8 + i % 2))
                                scores[n][i] = -INFINITY;
                };
                if (key + kKeys - 1 > first)
                    hide(0, [](int distance, int column) { return distance < column; });
                if (last - key >= window)
                    hide(window, [](int distance, int column) { return distance >= column; });
                softmax.soften(scores, scale.factor);
            };

            wait_for(places.keys_full(turn.stage), turn.parity);
            turns.take();
            const std::uint32_t first_keys = same_in_warp(places.keys(turn.stage));
            begin_products();
            begin_scores(first_keys);
            turns.pass();
            wait_products<0>();
            pin_registers(scores);
            release(places.keys_empty(turn.stage));
            soften(tile * kKeys);
            wait_for(places.values_full(turn.stage), turn.parity);
            to_fragments<kKeys>(scores, probabilities);
            StageTurn<Tiles::kStages> before = turn;
            turn.advance();

            for (++tile; tile < end; ++tile) {
                wait_for(places.keys_full(turn.stage), turn.parity);
                turns.take();
                const std::uint32_t keys = same_in_warp(places.keys(turn.stage));
                const std::uint32_t values = same_in_warp(places.values(before.stage));
                begin_products();
                begin_scores(keys);
                begin_sums(values);
                turns.pass();
                wait_products<Tiles::kOverlap ? 1 : 0>();
                pin_registers(scores);
                release(places.keys_empty(turn.stage));
                soften(tile * kKeys);
                pin_registers(scores);
                // Here, since the loop that waits keeps the compiler from moving the wait for the
                // sums ahead of the probabilities.
                wait_for(places.values_full(turn.stage), turn.parity);
                if constexpr (Tiles::kOverlap) wait_products<0>();
                pin_registers(sums);
                pin_operands(probabilities);
                release(places.values_empty(before.stage));
#pragma unroll
                for (int n = 0; n < kHeadDim / 8; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        sums[n][i] *= softmax.shrinks[i / 2];
                to_fragments<kKeys>(scores, probabilities);
                before = turn;
                turn.advance();
            }
            const std::uint32_t last_values = same_in_warp(places.values(before.stage));
            begin_products();
            begin_sums(last_values);
            wait_products<0>();
            pin_registers(sums);
            pin_operands(probabilities);
            release(places.values_empty(before.stage));

            store_group_forward<Tiles>(work, places, slot, sums, softmax);
        }
        __syncwarp();
        release(places.queries_empty(slot));
        for (; tile < item_end; ++tile)
            skip();
    }
    turns.end();
#endif
}

template <typename Tiles>
__global__ void __launch_bounds__(Tiles::kThreads, 1)
    attention_group_forward_kernel(const __grid_constant__ AttentionWork work) {
#ifdef GARAM_WARP_GROUPS
    extern __shared__ __align__(256) unsigned char group_shared_memory[];
    const GroupForwardPlaces<Tiles> places{shared_address(group_shared_memory)};
    if (threadIdx.x == 0) {
        constexpr int kReaders = 4 * Tiles::kGroups;  // warps
        for (int slot = 0; slot < 2; ++slot) {
            places.queries_full(slot).begin(kWarpGroup + 1);
            places.queries_empty(slot).begin(kReaders);
        }
        for (int stage = 0; stage < Tiles::kStages; ++stage) {
            places.keys_full(stage).begin(kWarpGroup);
            places.keys_empty(stage).begin(kReaders);
            places.values_full(stage).begin(kWarpGroup);
            places.values_empty(stage).begin(kReaders);
        }
    }
    __syncthreads();
    Tiles::Shares::divide([&] { load_group_forward<Tiles>(work, places); },
                          [&] { multiply_group_forward<Tiles>(work, places); });
#endif
}

template <typename Tiles>
void launch_group_forward_cut(StreamHandle stream, const AttentionWork& work) {
    allow_shared(attention_group_forward_kernel<Tiles>, Tiles::kBytes);
    const std::int64_t items = packed_pieces(work, Tiles::kRows);
    attention_group_forward_kernel<Tiles>
        <<<blocks_for_work(work, items), Tiles::kThreads, Tiles::kBytes, stream>>>(work);
    check_launch("attention_group_forward");
}

template <int kHeadDim>
void launch_group_forward(StreamHandle stream, const AttentionWork& work) {
    launch_group_forward_cut<GroupForwardTiles<kHeadDim>>(stream, work);
}

}  // namespace garam::cuda
