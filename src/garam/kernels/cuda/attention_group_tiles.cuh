// Tiles of a head's rows for the products of warp groups: their way into shared memory and back.
#pragma once

#include "garam/kernels/cuda/attention_tiles.cuh"
#include "garam/kernels/cuda/warp_group.cuh"

namespace garam::cuda {

// A warp group's way of bringing tiles of one matrix: what a thread copies lies at the same distances in
// every tile, found once. Its own time matters: a tile is due about every thousand cycles. Two threads take
// 32 bytes of a row, the sector that L2 gives, and eight threads fill the banks of shared memory.
template <typename Layout>
class TileLoader {
  public:
    __device__ __forceinline__ TileLoader(std::int64_t pitch, int head_dim, int thread)
        : row_(thread / 2),
          column_(thread % 2 * 8),
          from_(static_cast<std::uint32_t>(row_ * pitch + column_) * 2),
          down_(static_cast<std::uint32_t>(kDown * pitch) * 2),
          to_(static_cast<std::uint32_t>(Layout::offset(row_, thread % 2))),
          head_dim_(head_dim) {}
    // Begins to bring rows [0, valid) of x, columns [0, head_dim); the rest of the tile becomes zero.
    __device__ __forceinline__ void load(std::uint32_t tile, const Bf16* x, int valid) const {
        if (valid >= Layout::kRows && head_dim_ == Layout::kChunks * 8)
            copy<false>(tile, x, valid);
        else
            copy<true>(tile, x, valid);
    }
    // The same of rows that lie anywhere: row r at row_of(r), for r < valid.
    template <typename RowOf>
    __device__ __forceinline__ void load_each(std::uint32_t tile, int valid,
                                              const RowOf& row_of) const {
#pragma unroll
        for (int down = 0; down < Layout::kRows; down += kDown) {
            if (Layout::kRows % kDown != 0 && row_ + down >= Layout::kRows) break;
            const bool inside = row_ + down < valid;
            const Bf16* const from = row_of(inside ? row_ + down : 0) + column_;
            copy_row<true>(tile + to_ + static_cast<std::uint32_t>(down) * 32, from, inside);
        }
    }

  private:
    static constexpr int kDown = kWarpGroup / 2;

    template <bool kPartly>
    __device__ __forceinline__ void copy(std::uint32_t tile, const Bf16* x, int valid) const {
#pragma unroll
        for (int down = 0; down < Layout::kRows; down += kDown) {
            if (Layout::kRows % kDown != 0 && row_ + down >= Layout::kRows) break;
            const char* const from = reinterpret_cast<const char*>(x) +
                                     (from_ + static_cast<std::uint32_t>(down / kDown) * down_);
            copy_row<kPartly>(tile + to_ + static_cast<std::uint32_t>(down) * 32,
                              reinterpret_cast<const Bf16*>(from), row_ + down < valid);
        }
    }
    template <bool kPartly>
    __device__ __forceinline__ void copy_row(std::uint32_t to, const Bf16* from,
                                             bool inside) const {
#pragma unroll
        for (int step = 0; step < Layout::kSteps; ++step)
            copy_async_16(to + static_cast<std::uint32_t>(step * Layout::kStepBytes),
                          from + step * 16,
                          !kPartly || (inside && column_ + step * 16 < head_dim_));
    }

    int row_, column_;
    std::uint32_t from_, down_, to_;  // bytes
    int head_dim_;
};

// A warp's 16 rows of accumulators times `low` (rows g) and `high` (g + 8), through rows of a tile that nobody
// else uses, to rows r of memory at row_of(r), for r < valid.
template <typename Layout, typename RowOf>
__device__ __forceinline__ void store_chunks_each(std::uint32_t tile, int tile_row,
                                                  const float (&x)[Layout::kChunks][4], float low,
                                                  float high, int valid, int head_dim,
                                                  const RowOf& row_of) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int row = tile_row + lane / 4;
#pragma unroll
    for (int n = 0; n < Layout::kChunks; ++n) {
        const std::uint32_t to =
            tile + static_cast<std::uint32_t>(Layout::offset(row, n) + lane % 4 * 4);
        store_shared_4(to, pack(x[n][0] * low, x[n][1] * low));
        store_shared_4(to + 8 * 32, pack(x[n][2] * high, x[n][3] * high));
    }
    __syncwarp();
#pragma unroll
    for (int first = 0; first < 16 * Layout::kChunks; first += kWarp) {
        const int r = (first + lane) / Layout::kChunks;
        const int chunk = (first + lane) % Layout::kChunks;
        if (r >= valid || chunk * 8 >= head_dim) continue;
        Bf16* const to = row_of(r);
        *reinterpret_cast<uint4*>(to + chunk * 8) =
            load_shared_16(tile + static_cast<std::uint32_t>(Layout::offset(tile_row + r, chunk)));
    }
}
template <typename Layout>
__device__ __forceinline__ void store_chunks(std::uint32_t tile, int tile_row,
                                             const float (&x)[Layout::kChunks][4], float factor,
                                             const HeadRows& y, int valid, int head_dim) {
    store_chunks_each<Layout>(tile, tile_row, x, factor, factor, valid, head_dim,
                              [&](int r) { return y.data + r * y.pitch; });
}

}  // namespace garam::cuda
