// How blocks with warp groups go through their work (sm_90a). A block is there for the whole grid's time and
// takes work by work; one warp group loads, ahead of the others, which multiply: the tiles of a work go
// through a ring of stages, and what a work needs all its time has two slots, of this work and of the next.
#pragma once

#include <algorithm>

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
    // By all threads of a block: each side does its own, and with its share.
    template <typename Load, typename Multiply>
    __device__ __forceinline__ static void divide(const Load& load, const Multiply& multiply) {
        if (threadIdx.x >= kGroups * kWarpGroup) {
            give_registers_back<kLoading>();
            load();
        } else {
            take_registers<kMultiplying>();
            multiply();
        }
    }
};

// The blocks that `items` pieces of work take, of those that run at once.
inline unsigned blocks_for_work(const AttentionWork& work, std::int64_t items) {
    return static_cast<unsigned>(std::min<std::int64_t>(items, work.multiprocessors));
}
// Pieces of `rows` PackedRows, or a few more.
inline std::int64_t packed_pieces(const AttentionWork& work, std::int64_t rows) {
    return (work.q_tokens * (work.heads / work.kv_heads) / rows + work.segments) * work.kv_heads;
}
// The block's piece of work of a round: there and back, since what comes first is longer.
__device__ __forceinline__ int dealt_work(int round) {
    const int blocks = static_cast<int>(gridDim.x);
    const int block = static_cast<int>(blockIdx.x);
    return round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
}

// Tells the compiler what is the same in all lanes, so that it computes once for the warp.
template <typename T>
__device__ __forceinline__ T same_in_warp(T x) {
    return static_cast<T>(__shfl_sync(0xffffffffu, static_cast<int>(x), 0));
}

// A block's piece of work: rows [first_row, first_row + kRows) of the `rows` of a segment, row r being
// head r % group of query r / group, against the tiles of keys [begin, end). No rows: the end.
struct PackedRows {
    static constexpr int kBytes = 32;
    int first_row, rows;
    int q_row;
    int behind;  // keys before the first query
    int begin, end;
    int kv_head;

    // The piece `index`, longest first; false: there are not so many. k_row: the segment's first key.
    template <int kRows, int kKeys>
    __device__ __forceinline__ bool find(const AttentionWork& work, const std::int32_t* cu_k,
                                         int index, int& k_row) {
        const int kv_heads = static_cast<int>(work.kv_heads);
        const int group = static_cast<int>(work.heads) / kv_heads;
        TilePlace place;
        if (!find_longest_tile(work.cu_q, static_cast<int>(work.segments), kRows, index / kv_heads,
                               place, group))
            return false;
        q_row = work.cu_q[place.segment];
        k_row = cu_k[place.segment];
        const int lq = work.cu_q[place.segment + 1] - q_row;
        const int lk = cu_k[place.segment + 1] - k_row;
        rows = lq * group;
        first_row = (place.tiles - 1 - place.tile) * kRows;
        behind = lk - lq;
        const int first = behind + first_row / group;
        const int last = behind + (min(first_row + kRows, rows) - 1) / group;
        begin = max(0, first - window_of(work) + 1) / kKeys;
        end = last / kKeys + 1;
        kv_head = index % kv_heads;
        return true;
    }
    // Begins to bring the piece's rows of x, as many as there are.
    template <typename Layout>
    __device__ __forceinline__ void bring(const TileLoader<Layout>& loader, std::uint32_t tile,
                                          const Rows& x, int group, int head_dim) const {
        const HeadRows from = head_rows(x, q_row, kv_head * group, head_dim);
        loader.load_each(tile, rows - first_row, [&](int r) {
            const int query = (first_row + r) / group;
            const int head = first_row + r - query * group;
            return from.data + query * from.pitch + head * head_dim;
        });
    }
    // store_chunks to rows of y, from the piece's row `warp_row` on.
    template <typename Layout>
    __device__ __forceinline__ void store_chunks(std::uint32_t tile, int warp_row,
                                                 const float (&x)[Layout::kChunks][4], float low,
                                                 float high, const Rows& y, int group,
                                                 int head_dim) const {
        const HeadRows to = head_rows(y, q_row, kv_head * group, head_dim);
        store_chunks_each<Layout>(
            tile, warp_row, x, low, high, rows - first_row - warp_row, head_dim, [&](int r) {
                const int row = first_row + warp_row + r;
                return to.data + row / group * to.pitch + row % group * head_dim;
            });
    }

    __device__ __forceinline__ void store(std::uint32_t to) const {
        const auto word = [](int x) { return static_cast<unsigned>(x); };
        store_shared_16(to, {word(first_row), word(rows), word(q_row), word(behind)});
        store_shared_16(to + 16, {word(begin), word(end), word(kv_head), 0});
    }
    // By all lanes of a warp.
    __device__ __forceinline__ static PackedRows load(std::uint32_t from) {
        const uint4 a = load_shared_16(from);
        const uint4 b = load_shared_16(from + 16);
        return {same_in_warp(static_cast<int>(a.x)), same_in_warp(static_cast<int>(a.y)),
                same_in_warp(static_cast<int>(a.z)), same_in_warp(static_cast<int>(a.w)),
                same_in_warp(static_cast<int>(b.x)), same_in_warp(static_cast<int>(b.y)),
                same_in_warp(static_cast<int>(b.z))};
    }
};

// Goes round the stages.
template <int kStages>
struct StageTurn {
    int stage = 0;
    std::uint32_t parity = 0;
    __device__ __forceinline__ void advance() {
        if (++stage == kStages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// A ring of stages in shared memory: `full` when its rows came, `empty` when no product reads them. Each side
// walks over the stages with a ring of its own.
template <int kStages>
class StageRing : public StageTurn<kStages> {
  public:
    static constexpr int kBytes = kStages * 16;
    using StageTurn<kStages>::stage;
    using StageTurn<kStages>::parity;
    using StageTurn<kStages>::advance;

    __device__ __forceinline__ explicit StageRing(std::uint32_t barriers) : barriers_(barriers) {}
    // By one thread of the block. `words`: of each stage, plain stores that stored() tells of.
    __device__ __forceinline__ void begin(int reading_warps, int words = 0) const {
        for (int i = 0; i < kStages; ++i) {
            full(i).begin(kWarpGroup + words);
            empty(i).begin(reading_warps);
        }
    }
    // The loading side, its whole warp group: load(stage) begins copies, which may take their time.
    template <typename Load>
    __device__ __forceinline__ void fill(const Load& load) {
        empty(stage).wait(parity ^ 1);  // of the round before; passes in the first
        load(stage);
        full(stage).arrive_after_copies();
        advance();
    }
    // Within load: this thread stored what it had to.
    __device__ __forceinline__ void stored() const { full(stage).arrive(); }

    // The reading side, whole warps: wait, then hold, skip or release, then advance.
    __device__ __forceinline__ void wait() const {
        full(stage).wait(parity);
        publish_to_products();
    }
    // Products of this stage were begun, and those of the stage held before have ended.
    __device__ __forceinline__ void hold() {
        if (held_ >= 0) release(held_);
        held_ = stage;
    }
    // All products have ended: the stage held is given back.
    __device__ __forceinline__ void drop() {
        wait_products<0>();
        if (held_ >= 0) release(held_);
        held_ = -1;
    }
    // Nothing of this stage is needed. The stage held is given back too: the loading side may need it for
    // what comes next.
    __device__ __forceinline__ void skip() {
        if (held_ >= 0) drop();
        __syncwarp();  // all lanes have waited
        release(stage);
    }
    __device__ __forceinline__ void release(int of) const {
        if (threadIdx.x % kWarp == 0) empty(of).arrive();
    }

  private:
    __device__ __forceinline__ StageBarrier full(int of) const {
        return {barriers_ + static_cast<std::uint32_t>(of) * 16};
    }
    __device__ __forceinline__ StageBarrier empty(int of) const {
        return {barriers_ + static_cast<std::uint32_t>(of) * 16 + 8};
    }

    std::uint32_t barriers_;
    int held_ = -1;  // the stage that products under way read
};

// Where things lie in a block's shared memory: two slots, the stages, a description of the work of each slot
// (kItemBytes), barriers.
template <int kSlotBytes, int kStageBytes, int kStages, int kItemBytes>
struct WorkPlaces {
    static constexpr int kBytes = 2 * (kSlotBytes + kItemBytes) + kStages * kStageBytes +
                                  StageRing<2>::kBytes + StageRing<kStages>::kBytes;
    static_assert(kSlotBytes % 256 == 0 && kStageBytes % 256 == 0 && kItemBytes % 16 == 0);
    static_assert(kBytes <= 227 * 1024);
    std::uint32_t begin;
    __device__ __forceinline__ std::uint32_t slot(int index) const {
        return begin + static_cast<std::uint32_t>(index * kSlotBytes);
    }
    __device__ __forceinline__ std::uint32_t stage(int index) const {
        return slot(2) + static_cast<std::uint32_t>(index * kStageBytes);
    }
    __device__ __forceinline__ std::uint32_t item(int slot) const {
        return stage(kStages) + static_cast<std::uint32_t>(slot * kItemBytes);
    }
    __device__ __forceinline__ StageRing<2> slots() const { return StageRing<2>(item(2)); }
    __device__ __forceinline__ StageRing<kStages> stages() const {
        return StageRing<kStages>(item(2) + StageRing<2>::kBytes);
    }
    // By all threads of the block, before they part.
    __device__ __forceinline__ void begin_barriers(int reading_warps) const {
        if (threadIdx.x == 0) {
            slots().begin(reading_warps, 1);
            stages().begin(reading_warps);
        }
        __syncthreads();
    }
};

}  // namespace garam::cuda
