// Two to four rows against transposed rows of bf16: c [m, n] of a [m, k], b [n, k]; one row where it is too
// long for row_matmul.h, which has the others.
// A warp sums two rows of b; where these are few, 2, 4 or 8 warps of a block share the columns and add up
// in the warps' order. How k is cut depends on n and k, not on m.
//
// Floor: b read once, at the bandwidth of the memory. a stays in the first-level cache; about 24
// instructions a lane for each 16 bytes and row of a are a third of what the schedulers issue meanwhile.
#include <algorithm>

#include "garam/kernels/cuda/early_launch.cuh"
#include "garam/kernels/cuda/matmul.h"
#include "garam/kernels/cuda/row_matmul.h"

namespace garam::cuda {
namespace {

using Bf16 = __nv_bfloat16;

constexpr int kWarps = 8;
constexpr int kRows = 2;    // of b, a warp
constexpr int kAtOnce = 4;  // vectors of a row that are under way together
constexpr int kElements = kVector<Bf16>;

// Read once: not to be kept in the first-level cache, which holds a.
__device__ __forceinline__ uint4 load_once(const Bf16* pointer) {
    uint4 x;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(pointer));
    return x;
}

template <int kM, typename Out>
__global__ void __launch_bounds__(kWarps* kWarp)
    gemv_kernel(const __grid_constant__ MatmulArguments x, int share) {
    __shared__ float shared[kWarps][kM * kRows];
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const std::int64_t row =
        (static_cast<std::int64_t>(blockIdx.x) * (kWarps / share) + warp / share) * kRows;

    const Bf16* b[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r)  // beyond the end the last row is read again
        b[r] = static_cast<const Bf16*>(x.b.data) + (row + r < x.n ? row + r : x.n - 1) * x.b.pitch;
    const Bf16* const a = static_cast<const Bf16*>(x.a.data);
    const int vectors = static_cast<int>(x.k / kElements);
    const int step = share * kWarp;

    float sums[kM][kRows] = {};
    uint4 weights[kAtOnce][kRows];
    const auto load = [&](int first) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            const int vector = first + i * step;
#pragma unroll
            for (int r = 0; r < kRows; ++r)
                weights[i][r] =
                    vector < vectors
                        ? load_once(b[r] + static_cast<std::int64_t>(vector) * kElements)
                        : make_uint4(0, 0, 0, 0);
        }
    };
    let_next_begin();
    int first = warp % share * kWarp + lane;
    load(first);  // weights, which are there before the work ahead has ended
    wait_for_previous();
    while (first < vectors) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            const int vector = first + i * step;
            if (vector >= vectors) break;
#pragma unroll
            for (int m = 0; m < kM; ++m) {
                const uint4 values = *reinterpret_cast<const uint4*>(
                    a + m * x.a.pitch + static_cast<std::int64_t>(vector) * kElements);
#pragma unroll
                for (int r = 0; r < kRows; ++r)
                    sums[m][r] = add_products(values, weights[i][r], sums[m][r]);
            }
        }
        first += kAtOnce * step;
        if (first < vectors) load(first);
    }

    // Lane m * kRows + r gets the sum of its number.
    float sum = 0;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            const float whole = warp_sum(sums[m][r]);
            if (lane == m * kRows + r) sum = whole;
        }
    }
    if (share > 1) {
        if (lane < kM * kRows) shared[warp][lane] = sum;
        __syncthreads();
        if (warp % share != 0) return;
        if (lane < kM * kRows)
            for (int other = 1; other < share; ++other)
                sum += shared[warp + other][lane];
    }
    const int m = lane / kRows;
    const std::int64_t column = row + lane % kRows;
    if (m >= kM || column >= x.n) return;
    float result = x.alpha * sum;
    if (x.addend.data != nullptr)
        result += to_float(static_cast<const Out*>(x.addend.data)[m * x.addend.pitch + column]);
    if (x.bias != nullptr) result += to_float(static_cast<const Out*>(x.bias)[column]);
    static_cast<Out*>(x.c.data)[m * x.c.pitch + column] = from_float<Out>(result);
}

template <int kM, typename Out>
void launch_rows(StreamHandle stream, const MatmulArguments& x, std::int64_t blocks, int share) {
    const dim3 grid(static_cast<unsigned>(blocks));
    if (x.b_is_settled)
        launch_early(gemv_kernel<kM, Out>, grid, kWarps * kWarp, 0, stream, x, share);
    else
        gemv_kernel<kM, Out><<<grid, kWarps * kWarp, 0, stream>>>(x, share);
    check_launch("gemv");
}

template <typename Out>
void launch(StreamHandle stream, const MatmulArguments& x, std::int64_t blocks, int share) {
    if (x.m == 1) return launch_rows<1, Out>(stream, x, blocks, share);
    if (x.m == 2) return launch_rows<2, Out>(stream, x, blocks, share);
    if (x.m == 3) return launch_rows<3, Out>(stream, x, blocks, share);
    launch_rows<4, Out>(stream, x, blocks, share);
}

bool in_vectors(const Rows& rows) {
    return reinterpret_cast<std::uintptr_t>(rows.data) % 16 == 0 && rows.pitch % kElements == 0;
}

bool one_row(StreamHandle stream, const MatmulArguments& x) {
    if (!row_matmul_takes(RowInput::given, 0, x.k)) return false;
    RowMatmul work;
    work.n = x.n;
    work.k = x.k;
    work.tail = x.a.data;
    work.b = x.b;
    work.addend = x.addend.data;
    work.bias = x.bias;
    work.c = x.c.data;
    work.c_is_bf16 = x.c_is_bf16;
    work.b_is_settled = x.b_is_settled;
    work.alpha = x.alpha;
    row_matmul_kernels().multiply(stream, work);
    return true;
}

}  // namespace

bool gemv(StreamHandle stream, const MatmulArguments& x) {
    if (x.m > kMostGemvRows || x.transpose_a || !x.transpose_b || !x.inputs_are_bf16) return false;
    if (x.k % kElements != 0 || x.k > (std::int64_t{1} << 30) || !in_vectors(x.b)) return false;
    Rows a = x.a;
    if (x.m == 1) a.pitch = 0;
    if (!in_vectors(a)) return false;
    if (x.m == 1 && one_row(stream, x)) return true;

    // About 24 warps for each multiprocessor of a large card, and two vectors for each lane.
    constexpr std::int64_t kEnoughWarps = 132 * 24;
    constexpr std::int64_t kFewestColumns = 2 * kWarp * kElements;
    const std::int64_t groups = (x.n + kRows - 1) / kRows;
    int share = 1;
    while (share < kWarps && groups * share < kEnoughWarps && x.k >= 2 * share * kFewestColumns)
        share *= 2;
    const std::int64_t in_block = kWarps / share;
    const std::int64_t blocks = (groups + in_block - 1) / in_block;
    if (x.c_is_bf16)
        launch<Bf16>(stream, x, blocks, share);
    else
        launch<float>(stream, x, blocks, share);
    return true;
}

}  // namespace garam::cuda
