// Element-by-element work on rows with pitches.
#pragma once

#include <algorithm>
#include <type_traits>

#include "garam/kernels/cuda/early_launch.cuh"
#include "garam/kernels/cuda/launch.h"

namespace garam::cuda {

constexpr int kMapThreads = 256;
constexpr std::int64_t kMostGridY = 65535;

// Whether all rows can be accessed N elements at a time.
template <typename T, int N>
bool rows_allow(const Rows& x) {
    return reinterpret_cast<std::uintptr_t>(x.data) % (N * sizeof(T)) == 0 && x.pitch % N == 0;
}

template <int N, typename T>
__device__ __forceinline__ Vector<T, N> load_vector(const T* from) {
    return *reinterpret_cast<const Vector<T, N>*>(from);
}
template <int N, typename T>
__device__ __forceinline__ void store_vector(T* to, const Vector<T, N>& x) {
    *reinterpret_cast<Vector<T, N>*>(to) = x;
}

// A map is a struct with an access width kWidth, the accesses of each operand that a thread has in
// flight (kUnroll), a template Value<N>, and line(row), which gives an object with two functions,
// load<N>(column) -> Value<N> and store<N>(column, value). All loads of a thread come before its
// stores, so that they are in flight together; a map may write what it reads, at the same place.
// Column: int below 2^30 columns, else std::int64_t.
template <typename Map, typename Column>
__global__ void __launch_bounds__(kMapThreads)
    map_rows(const __grid_constant__ Map map, std::int64_t rows, Column columns) {
    let_next_begin();
    wait_for_previous();
    constexpr int N = Map::kWidth;
    constexpr int kUnroll = Map::kUnroll;
    const Column stride = static_cast<Column>(blockDim.x) * N;
    const Column begin =
        static_cast<Column>(blockIdx.x) * stride * kUnroll + static_cast<Column>(threadIdx.x) * N;
    const std::int64_t row_step = static_cast<std::int64_t>(gridDim.y) * blockDim.y;
    for (std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
         row < rows; row += row_step) {
        const auto line = map.line(row);
        typename Map::template Value<N> value[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
            if (begin + u * stride + N <= columns)
                value[u] = line.template load<N>(begin + u * stride);
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const Column column = begin + u * stride;
            if (column + N <= columns) {
                line.template store<N>(column, value[u]);
            } else if constexpr (N > 1) {
                for (Column i = column; i < columns; ++i)
                    line.template store<1>(i, line.template load<1>(i));
            }
        }
    }
}

template <typename Column = int, typename Map>
void launch_map_rows(const char* name, StreamHandle stream, const Map& map, std::int64_t rows,
                     std::int64_t columns) {
    if (rows == 0 || columns == 0) return;
    // Blocks along a row are alike and nearly full; short rows share a block.
    const std::int64_t accesses = (columns + Map::kWidth - 1) / Map::kWidth;
    const std::int64_t most = kMapThreads * Map::kUnroll;
    const std::int64_t blocks_x = (accesses + most - 1) / most;
    const std::int64_t share = blocks_x * Map::kUnroll;
    const std::int64_t granule = accesses >= kWarp * share ? kWarp : kWarp / 4;
    const std::int64_t across = ((accesses + share - 1) / share + granule - 1) / granule * granule;
    const std::int64_t down = std::max<std::int64_t>(1, kMapThreads / across);
    const std::int64_t blocks_y = std::min((rows + down - 1) / down, kMostGridY);
    launch_early(map_rows<Map, Column>,
                 dim3(static_cast<unsigned>(blocks_x), static_cast<unsigned>(blocks_y)),
                 dim3(static_cast<unsigned>(across), static_cast<unsigned>(down)), 0, stream, map,
                 rows, static_cast<Column>(columns));
    check_launch(name);
}

}  // namespace garam::cuda
