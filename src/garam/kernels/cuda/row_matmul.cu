// The rows of b are divided among as many blocks as there are multiprocessors, the steps (32 vectors of 16
// bytes) of a block's rows among its warps, as evenly as whole steps allow. A thread keeps kRowStages
// copies of its own under way from the first instruction to its last step, 64 KB a multiprocessor, and
// from one row to the next; and since two blocks fit a multiprocessor, those of the product behind begin
// theirs while this one ends (early_launch.cuh).
//
// A row's sum may be cut between warps: the warp that has its beginning writes its part to the row's
// place, each other one to a place of its own. They are added in the order of the warps.
#include <algorithm>

#include "garam/kernels/cuda/early_launch.cuh"
#include "garam/kernels/cuda/row_input.cuh"

namespace garam::cuda {
namespace {

constexpr int kThreads = static_cast<int>(kRowThreads);
constexpr int kWarps = kThreads / kWarp;
constexpr int kStages = static_cast<int>(kRowStages);
static_assert(kRowStep == kWarp * kElements);
static_assert((kStages & (kStages - 1)) == 0);

template <RowInput kInput, typename Out>
__global__ void __maxnreg__(48)  // two blocks leave registers for attention's
    row_matmul_kernel(const __grid_constant__ RowMatmul work) {
    extern __shared__ uint4 shared_memory[];
    __shared__ float shared[kWarps];     // of a sum over the block
    __shared__ float continued[kWarps];  // a warp's part of the row that it begins within
    uint4* const ring = shared_memory;
    uint4* const row = ring + kStages * kThreads;
    const int vectors = static_cast<int>(work.k) / kElements;
    const int steps = (vectors + kWarp - 1) / kWarp;  // of a row
    float* const sums = reinterpret_cast<float*>(row + steps * kWarp);
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % kWarp;
    const int warp = thread / kWarp;
    let_next_begin();

    const std::int64_t first_row = blockIdx.x * work.n / gridDim.x;
    const int rows = static_cast<int>((blockIdx.x + 1) * work.n / gridDim.x - first_row);
    const int total = rows * steps;
    const auto begin_of = [&](int w) { return w * total / kWarps; };
    const int begin = begin_of(warp);
    const int end = begin_of(warp + 1);

    // Copies run kStages steps ahead. Beyond the end of a row they are zeros.
    const int begin_within = begin % steps;
    int copied = begin;
    int to_copy = begin_within;
    const Bf16* from = static_cast<const Bf16*>(work.b.data) +
                       (first_row + begin / steps) * work.b.pitch + lane * kElements;
    const std::uint32_t own = shared_address(ring + thread);
    const auto copy = [&](int slot) {
        if (copied < end) {
            copy_async_16(own + static_cast<std::uint32_t>(slot * kThreads * 16),
                          from + to_copy * (kWarp * kElements), to_copy * kWarp + lane < vectors);
            ++copied;
            if (++to_copy == steps) {
                to_copy = 0;
                from += work.b.pitch;
            }
        }
        copy_async_commit();
    };
    Made<kInput, kThreads> made_row;
    made_row.begin(work);
#pragma unroll
    for (int slot = 0; slot < kStages; ++slot)
        copy(slot);
    wait_for_previous();

    // What the end adds is on its way meanwhile.
    const auto* const addend = static_cast<const Out*>(work.addend);
    const auto* const bias = static_cast<const Out*>(work.bias);
    Out first_addend = from_float<Out>(0.0f);
    Out first_bias = from_float<Out>(0.0f);
    if (thread < rows && addend != nullptr) first_addend = addend[first_row + thread];
    if (thread < rows && bias != nullptr) first_bias = bias[first_row + thread];
    // By the last threads: the first ones have more of a norm to do.
    const int made = made_vectors(work);
    for (int vector = made + kThreads - 1 - thread; vector < steps * kWarp; vector += kThreads)
        row[vector] =
            vector < vectors ? load_vector_of(work.tail, vector - made) : make_uint4(0, 0, 0, 0);
    made_row.write(work, row, shared);
    __syncthreads();

    float sum = 0;
    int within = begin_within;
    int r = begin / steps;
    float* place = begin_within == 0 ? &sums[r] : &continued[warp];
    int slot = 0;
#pragma unroll 1
    for (int step = begin; step < end; ++step) {
        copy_async_wait<kStages - 1>();
        const uint4 weights =
            load_shared_16(own + static_cast<std::uint32_t>(slot * kThreads * 16));
        sum = add_products(row[within * kWarp + lane], weights, sum);
        copy(slot);
        slot = (slot + 1) % kStages;
        if (++within == steps || step + 1 == end) {
            const float whole = warp_sum(sum);
            if (lane == 0) *place = whole;
            sum = 0;
            within = 0;
            place = &sums[++r];
        }
    }
    copy_async_wait<0>();
    __syncthreads();

    for (int i = thread; i < rows; i += kThreads) {
        float whole = sums[i];
#pragma unroll
        for (int w = 1; w < kWarps; ++w) {
            const int b = begin_of(w);
            if (b > i * steps && b < (i + 1) * steps && b < begin_of(w + 1)) whole += continued[w];
        }
        float result = work.alpha * whole;
        if (addend != nullptr)
            result += to_float(i == thread ? first_addend : addend[first_row + i]);
        if (bias != nullptr) result += to_float(i == thread ? first_bias : bias[first_row + i]);
        static_cast<Out*>(work.c)[first_row + i] = from_float<Out>(result);
    }
}

template <RowInput kInput, typename Out>
void launch(StreamHandle stream, const RowMatmul& work) {
    const auto kernel = row_matmul_kernel<kInput, Out>;
    const auto bytes = static_cast<int>(row_matmul_shared_bytes(work.k));
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                         cudaSharedmemCarveoutMaxShared);
    const std::int64_t fewest = (work.n + kRowMostRows - 1) / kRowMostRows;
    const dim3 blocks(
        static_cast<unsigned>(std::max(std::min<std::int64_t>(multiprocessors(), work.n), fewest)));
    if (work.b_is_settled)
        launch_early(kernel, blocks, kThreads, bytes, stream, work);
    else
        kernel<<<blocks, kThreads, static_cast<std::size_t>(bytes), stream>>>(work);
    check_launch("row_matmul");
}

template <RowInput kInput>
void launch_for(StreamHandle stream, const RowMatmul& work) {
    if (work.c_is_bf16)
        launch<kInput, Bf16>(stream, work);
    else
        launch<kInput, float>(stream, work);
}

void multiply(StreamHandle stream, const RowMatmul& work) {
    if (work.n == 0) return;
    switch (work.input) {
        case RowInput::given:
            return launch_for<RowInput::given>(stream, work);
        case RowInput::rms_norm:
            return launch_for<RowInput::rms_norm>(stream, work);
        case RowInput::silu_mul:
            return launch_for<RowInput::silu_mul>(stream, work);
        case RowInput::gelu_tanh_mul:
            return launch_for<RowInput::gelu_tanh_mul>(stream, work);
    }
}

}  // namespace

const RowMatmulKernels& row_matmul_kernels() {
    static constexpr RowMatmulKernels kTable{multiply};
    return kTable;
}

}  // namespace garam::cuda
