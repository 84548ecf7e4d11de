// What the attention kernels share: where a block of the grid works, how rows lie in shared memory, the
// scores of a tile.
#pragma once

#include <climits>

#include "garam/kernels/cuda/attention.h"
#include "garam/kernels/cuda/device_code.cuh"
#include "garam/kernels/cuda/tensor_core.cuh"

namespace garam::cuda {

// Lets a kernel have `bytes` of shared memory, and the multiprocessor give it all it has: two blocks fit.
template <typename Kernel>
void allow_shared(Kernel kernel, int bytes) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                         cudaSharedmemCarveoutMaxShared);
}

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

// The tiles of all segments one after another: tile `index` of pieces of `rows` rows.
struct TilePlace {
    int segment;
    int tile, tiles;  // within the segment
};

// The same answer in all threads of all warps; false: past the last tile. Empty segments have no tile.
// `factor` multiplies the rows of a segment.
__device__ __forceinline__ bool find_tile(const std::int32_t* cu, int segments, int factor,
                                          int rows, int index, TilePlace& place) {
    constexpr unsigned kAll = 0xffffffffu;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    int before = 0;
    for (int base = 0; base < segments; base += kWarp) {
        const int segment = base + lane;
        int tiles = 0;
        if (segment < segments)
            tiles = ((cu[segment + 1] - cu[segment]) * factor + rows - 1) / rows;
        int end = tiles;  // inclusive sums over the lanes
#pragma unroll
        for (int offset = 1; offset < kWarp; offset *= 2) {
            const int other = __shfl_up_sync(kAll, end, offset);
            if (lane >= offset) end += other;
        }
        const int total = __shfl_sync(kAll, end, kWarp - 1);
        if (index < before + total) {
            const int owner =
                __ffs(static_cast<int>(__ballot_sync(kAll, before + end > index))) - 1;
            place.segment = base + owner;
            place.tiles = __shfl_sync(kAll, tiles, owner);
            place.tile = index - before - (__shfl_sync(kAll, end, owner) - place.tiles);
            return true;
        }
        before += total;
    }
    return false;
}

// As find_tile, but in the order of work, of all segments together: under a causal mask the tiles of a
// segment have 1, 2, 3 … units of it, and `tile` 0 is the one with the most. Blocks start in the order of
// their indices, so the last ones to start are short and the multiprocessors end together. `factor` as there.
__device__ __forceinline__ bool find_longest_tile(const std::int32_t* cu, int segments, int rows,
                                                  int index, TilePlace& place, int factor = 1) {
    constexpr unsigned kAll = 0xffffffffu;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    // Tiles of more than `work` units over all segments, and the longest tile of this lane's.
    int longest = 0;
    const auto count_longer = [&](int work) {
        int count = 0;
        for (int segment = lane; segment < segments; segment += kWarp) {
            const int tiles = ((cu[segment + 1] - cu[segment]) * factor + rows - 1) / rows;
            count += max(0, tiles - work);
            longest = max(longest, tiles);
        }
        return __reduce_add_sync(kAll, count);
    };
    if (index >= count_longer(0)) return false;
    longest = __reduce_max_sync(kAll, longest);
    // The least work of which at most `index` tiles have more.
    int low = 1, work = longest;
    while (low < work) {
        const int middle = (low + work) / 2;
        if (count_longer(middle) <= index)
            work = middle;
        else
            low = middle + 1;
    }
    // Every segment of at least so many tiles has one of this work.
    int rank = index - count_longer(work);
    for (int base = 0; base < segments; base += kWarp) {
        const int segment = base + lane;
        int tiles = 0;
        if (segment < segments)
            tiles = ((cu[segment + 1] - cu[segment]) * factor + rows - 1) / rows;
        const unsigned has = __ballot_sync(kAll, tiles >= work);
        const int count = __popc(has);
        if (rank < count) {
            const int before = __popc(has & ((1u << lane) - 1));
            const unsigned mine = __ballot_sync(kAll, tiles >= work && before == rank);
            const int owner = __ffs(static_cast<int>(mine)) - 1;
            place.segment = base + owner;
            place.tiles = __shfl_sync(kAll, tiles, owner);
            place.tile = place.tiles - work;
            return true;
        }
        rank -= count;
    }
    return false;
}

// Keys that a query at position p sees: p - window < key <= p. INT_MAX: all up to p.
__device__ __forceinline__ int window_of(const AttentionWork& work) {
    return work.window > 0 && work.window < INT_MAX ? static_cast<int>(work.window) : INT_MAX;
}

// Scores in base 2: factor * x, where x is q . k, or tanh(inner * q . k) under a soft cap.
struct ScoreScale {
    float factor;   // to base 2
    float natural;  // to base e
    float inner;    // 0: no cap
};
__device__ __forceinline__ ScoreScale score_scale(const AttentionWork& work) {
    const float natural = work.softcap > 0 ? work.softcap : work.scale;
    return {natural * kLog2E, natural, work.softcap > 0 ? work.scale / work.softcap : 0.0f};
}
// tanh to some 1e-7, absolute.
__device__ __forceinline__ float bounded(float x) {
    return 1.0f - __fdividef(2.0f, 1.0f + power_of_two(2.0f * kLog2E * x));
}

// Rows of kHeadDim bf16 in shared memory, so that eight rows of one 16-byte column lie in different banks:
// columns turned by the row where a row is a whole number of 128 bytes, an odd pitch elsewhere.
template <int kHeadDim>
struct TileLayout {
    static constexpr int kChunks = kHeadDim / 8;
    static constexpr bool kTurned = kHeadDim % 64 == 0;
    static constexpr int kPitch = (kTurned ? kChunks : kChunks | 1) * 16;  // bytes
    __device__ static __forceinline__ int offset(int row, int chunk) {
        return row * kPitch + (kTurned ? chunk ^ (row & 7) : chunk) * 16;
    }
    // A lane's place in a tile, whose columns are then reached by steps of 16 bytes.
    struct Lane {
        std::uint32_t base, turn;
        __device__ __forceinline__ Lane(std::uint32_t tile, int row, int chunk)
            : base(tile + static_cast<std::uint32_t>(row * kPitch + (kTurned ? 0 : chunk * 16))),
              turn(static_cast<std::uint32_t>(kTurned ? (row & 7) ^ chunk : 0) * 16) {
            forget(base);
            forget(turn);
        }
        // `chunks` further, an even number.
        __device__ __forceinline__ std::uint32_t at(int chunks) const {
            const std::uint32_t bytes = static_cast<std::uint32_t>(chunks) * 16;
            return base + (kTurned ? bytes ^ turn : bytes);
        }
    };
};

// Rows of one head of a matrix, from the row of `data` on.
struct HeadRows {
    Bf16* data;
    std::int64_t pitch;
};
__device__ __forceinline__ HeadRows head_rows(const Rows& x, std::int64_t row, int head,
                                              int head_dim) {
    return {static_cast<Bf16*>(x.data) + row * x.pitch + static_cast<std::int64_t>(head) * head_dim,
            x.pitch};
}

// Elements [0, count) of x and then zeros, whatever the alignment.
__device__ __forceinline__ uint4 load_8(const Bf16* x, int count) {
    float y[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
        y[i] = i < count ? to_float(x[i]) : 0.0f;
    return {pack(y[0], y[1]), pack(y[2], y[3]), pack(y[4], y[5]), pack(y[6], y[7])};
}

// Begins to bring rows [0, valid) and columns [0, head_dim) of x into a tile of kRows rows; the rest
// becomes zero. `kVector`: rows and columns allow 16-byte accesses; else plain loads, done on return.
// Neighbouring threads take neighbouring columns of a row, whole sectors of 32 bytes at least; a thread's
// pieces lie at constant distances, so that few addresses need a register.
template <int kHeadDim, int kRows, int kThreads, bool kVector>
__device__ __forceinline__ void load_tile(std::uint32_t tile, const HeadRows& x, int valid,
                                          int head_dim) {
    using Layout = TileLayout<kHeadDim>;
    constexpr int kAcross = Layout::kChunks % 8 == 0 ? 8 : Layout::kChunks % 4 == 0 ? 4 : 2;
    constexpr int kDown = kThreads / kAcross;  // rows at a time
    static_assert(Layout::kChunks % kAcross == 0 && kDown % 8 == 0);
    const int row = static_cast<int>(threadIdx.x) / kAcross;
    const int chunk = static_cast<int>(threadIdx.x) % kAcross;
    std::uint32_t to = tile + static_cast<std::uint32_t>(Layout::offset(row, chunk));
    const Bf16* from = x.data + row * x.pitch + chunk * 8;
    forget(to);
    forget(from);
#pragma unroll
    for (int down = 0; down < kRows; down += kDown) {
        if (kRows % kDown != 0 && row + down >= kRows) break;
#pragma unroll
        for (int across = 0; across < Layout::kChunks; across += kAcross) {
            const int column = (chunk + across) * 8;
            const bool inside = row + down < valid && column < head_dim;
            const Bf16* const piece = from + (down * x.pitch + across * 8);
            const std::uint32_t place =
                to + static_cast<std::uint32_t>(down * Layout::kPitch + across * 16);
            if constexpr (kVector)
                copy_async_16(place, piece, inside);
            else
                store_shared_16(place,
                                inside ? load_8(piece, head_dim - column) : uint4{0, 0, 0, 0});
        }
    }
}

// lse or delta of kRows rows of one head; zero beyond `valid`.
template <int kRows, int kThreads>
__device__ __forceinline__ void load_column(std::uint32_t to, const float* x, std::int64_t pitch,
                                            int valid) {
    for (int row = static_cast<int>(threadIdx.x); row < kRows; row += kThreads)
        copy_async_4(to + static_cast<std::uint32_t>(row) * 4, row < valid ? x + row * pitch : x,
                     row < valid);
}

// A warp's own 16 rows of accumulators (x times factors of the rows g and g + 8), through those rows of
// a tile that no other warp reads, to rows [0, valid) of y. Columns begin at `column` of the tile.
template <int kHeadDim, int kColumns, bool kVector>
__device__ __forceinline__ void store_rows(std::uint32_t tile, int tile_row, int column,
                                           const float (&x)[kColumns / 8][4], float low, float high,
                                           const HeadRows& y, int valid, int head_dim) {
    using Layout = TileLayout<kHeadDim>;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int row = tile_row + lane / 4;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
        const int chunk = column / 8 + n;
        const std::uint32_t within = static_cast<std::uint32_t>(lane % 4) * 4;
        store_shared_4(tile + static_cast<std::uint32_t>(Layout::offset(row, chunk)) + within,
                       pack(x[n][0] * low, x[n][1] * low));
        store_shared_4(tile + static_cast<std::uint32_t>(Layout::offset(row + 8, chunk)) + within,
                       pack(x[n][2] * high, x[n][3] * high));
    }
    __syncwarp();
    constexpr int kChunks = kColumns / 8;
#pragma unroll
    for (int first = 0; first < 16 * kChunks; first += kWarp) {
        const int i = first + lane;
        const int r = i / kChunks;
        const int chunk = column / 8 + i % kChunks;
        const int begin = chunk * 8;
        if (r >= valid || begin >= head_dim) continue;
        const uint4 words =
            load_shared_16(tile + static_cast<std::uint32_t>(Layout::offset(tile_row + r, chunk)));
        Bf16* const to = y.data + r * y.pitch + begin;
        if constexpr (kVector) {
            *reinterpret_cast<uint4*>(to) = words;
        } else {
            const std::uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
            auto* const bits = reinterpret_cast<std::uint16_t*>(to);
#pragma unroll
            for (int j = 0; j < 8; ++j)
                if (begin + j < head_dim)
                    bits[j] = static_cast<std::uint16_t>(pairs[j / 2] >> (j % 2 * 16));
        }
    }
}

// Products of a warp's slabs of 16 rows each, which share what is loaded of the other operand.
//
// scores [16, kColumns] += a [16, kHeadDim] * b [kColumns, kHeadDim] transposed, b in a tile and a given
// by fragments: a(slab, step) for 16 columns.
template <int kHeadDim, int kColumns, int kSlabs, typename Fragments>
__device__ __forceinline__ void multiply_rows(float (&scores)[kSlabs][kColumns / 8][4],
                                              const Fragments& a, std::uint32_t b) {
    using Layout = TileLayout<kHeadDim>;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const typename Layout::Lane from(b, lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
    for (int step = 0; step < kHeadDim / 16; ++step) {
        std::uint32_t fragment[kSlabs][4];
#pragma unroll
        for (int slab = 0; slab < kSlabs; ++slab)
            a(slab, step, fragment[slab]);
#pragma unroll
        for (int n = 0; n < kColumns / 16; ++n) {
            std::uint32_t columns[4];
            load_matrices(columns,
                          from.at(step * 2) + static_cast<std::uint32_t>(n * 16 * Layout::kPitch));
#pragma unroll
            for (int slab = 0; slab < kSlabs; ++slab) {
                multiply_add(scores[slab][2 * n], fragment[slab], columns[0], columns[1]);
                multiply_add(scores[slab][2 * n + 1], fragment[slab], columns[2], columns[3]);
            }
        }
    }
}

// Fragments of slabs in a tile, from `row` on.
template <int kHeadDim>
struct TileFragments {
    using Layout = TileLayout<kHeadDim>;
    typename Layout::Lane from;
    __device__ __forceinline__ TileFragments(std::uint32_t tile, int row)
        : from(tile, row + static_cast<int>(threadIdx.x) % 16,
               static_cast<int>(threadIdx.x) % kWarp / 16) {}
    __device__ __forceinline__ void operator()(int slab, int step, std::uint32_t (&a)[4]) const {
        load_matrices(a,
                      from.at(step * 2) + static_cast<std::uint32_t>(slab * 16 * Layout::kPitch));
    }
};

// One slab held in registers.
template <int kHeadDim>
struct HeldFragments {
    std::uint32_t held[kHeadDim / 16][4];
    __device__ __forceinline__ void load(std::uint32_t tile, int row) {
        const TileFragments<kHeadDim> from(tile, row);
#pragma unroll
        for (int step = 0; step < kHeadDim / 16; ++step)
            from(0, step, held[step]);
    }
    __device__ __forceinline__ void operator()(int /*slab*/, int step,
                                               std::uint32_t (&a)[4]) const {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            a[i] = held[step][i];
    }
};

// sums [16, kColumns] += a [16, kRows] * columns [column, column + kColumns) of b, a tile of kRows rows.
template <int kHeadDim, int kRows, int kColumns, int kSlabs>
__device__ __forceinline__ void multiply_columns(float (&sums)[kSlabs][kColumns / 8][4],
                                                 const std::uint32_t (&a)[kSlabs][kRows / 16][4],
                                                 std::uint32_t b, int column) {
    using Layout = TileLayout<kHeadDim>;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const typename Layout::Lane from(b, lane % 16, lane / 16);
#pragma unroll
    for (int step = 0; step < kRows / 16; ++step) {
#pragma unroll
        for (int n = 0; n < kColumns / 16; ++n) {
            std::uint32_t columns[4];
            load_matrices_transposed(columns,
                                     from.at(column / 8 + n * 2) +
                                         static_cast<std::uint32_t>(step * 16 * Layout::kPitch));
#pragma unroll
            for (int slab = 0; slab < kSlabs; ++slab) {
                multiply_add(sums[slab][2 * n], a[slab][step], columns[0], columns[1]);
                multiply_add(sums[slab][2 * n + 1], a[slab][step], columns[2], columns[3]);
            }
        }
    }
}

// Accumulators [16, kColumns], rounded, as fragments of the next product.
template <int kColumns>
__device__ __forceinline__ void to_fragments(const float (&x)[kColumns / 8][4],
                                             std::uint32_t (&a)[kColumns / 16][4]) {
#pragma unroll
    for (int step = 0; step < kColumns / 16; ++step) {
        a[step][0] = pack(x[2 * step][0], x[2 * step][1]);
        a[step][1] = pack(x[2 * step][2], x[2 * step][3]);
        a[step][2] = pack(x[2 * step + 1][0], x[2 * step + 1][1]);
        a[step][3] = pack(x[2 * step + 1][2], x[2 * step + 1][3]);
    }
}

}  // namespace garam::cuda
