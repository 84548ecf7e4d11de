// dh = dy B and B_gradient_m += scaling * dy_m' u_m of one reading of dy. A warp keeps 64 columns of one part
// (32 of rank 32): of B in registers, of the gradient as sums. It goes through a piece of the tokens, 16 a
// step, and the 8 warps of a block, side by side, add up their parts of dh at every step. These and the
// pieces' gradients lie in scratch, and a second kernel adds them in order.
#include "garam/kernels/cuda/early_launch.cuh"
#include "garam/kernels/cuda/lora_tiles.cuh"

namespace garam::cuda {
namespace {

constexpr int kWarps = 8;

// Where the blocks and the scratch of each part begin.
struct UpLayout {
    int first_chunk[kLoraMostParts + 1];
    std::int64_t first_row[kLoraMostParts + 1];
    std::int64_t steps;  // of 16 tokens, all
    float* gradients;    // [pieces, outputs, rank]
};
UpLayout up_layout(const LoraUpArguments& x) {
    UpLayout layout{};
    const std::int64_t columns = lora_up_columns(x.rank);
    for (int part = 0; part < kLoraMostParts; ++part) {
        const std::int64_t outputs = part < x.parts ? x.end[part] - x.begin[part] : 0;
        layout.first_chunk[part + 1] =
            layout.first_chunk[part] + static_cast<int>((outputs + columns - 1) / columns);
        layout.first_row[part + 1] = layout.first_row[part] + outputs;
    }
    layout.steps = (x.tokens + kLoraUpStep - 1) / kLoraUpStep;
    layout.gradients = x.partial + lora_up_dh_scratch(x);
    return layout;
}

// A warp's ring, and two buffers in which the warps add up dh.
template <int kTiles>
struct Ring {
    static constexpr int kAcross = kTiles <= 2 ? 2 : 1;       // times 32 columns a warp
    static constexpr int kColumns = 4 * kAcross;              // chunks of 16 bytes
    static constexpr int kOfU = kStepTokens * kColumns * 16;  // where in a stage
    static constexpr int kStage = kOfU + kStepTokens * kTiles * 16;
    static constexpr int kExchange = kWarps * kTiles * 4 * kWarp;  // floats
    static constexpr int kBytes = kWarps * kRingStages * kStage + 2 * kExchange * 4;
};

// Parts of dh lie as the lanes hold them: [chunks, steps, kTiles * 4, 32].
template <int kTiles>
__global__ void __launch_bounds__(kWarps* kWarp, 2)
    up_backward_kernel(const __grid_constant__ LoraUpArguments x,
                       const __grid_constant__ UpLayout layout, std::int64_t units) {
    using R = Ring<kTiles>;
    constexpr int kRank = 8 * kTiles;
    constexpr int kSlices = 2 * R::kAcross;  // of 16 columns
    extern __shared__ uint4 dynamic[];
    let_next_begin();
    wait_for_previous();
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int g = lane / 4;
    const int t = lane % 4;
    float* const exchange = reinterpret_cast<float*>(dynamic);
    const std::uint32_t ring =
        shared_address(dynamic) + 2 * R::kExchange * 4 + warp * (kRingStages * R::kStage);
    const int chunk = static_cast<int>(blockIdx.x);
    int part = 0;
    while (chunk >= layout.first_chunk[part + 1])
        ++part;
    const std::int64_t first_column =
        x.begin[part] +
        static_cast<std::int64_t>((chunk - layout.first_chunk[part]) * kWarps + warp) *
            (R::kAcross * kLoraColumns);
    const std::int64_t last_column = x.end[part];
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * units * kLoraUpTokens;
    const std::int64_t end = min(begin + units * kLoraUpTokens, x.tokens);

    const int copy_row = lane / R::kColumns;
    const int copy_chunk = lane % R::kColumns;
    const bool copy_inside = first_column + 8 * copy_chunk < last_column;
    const Bf16* from_dy = bf16_row(x.dy, begin + copy_row) + first_column + 8 * copy_chunk;
    const Bf16* from_u = bf16_row(x.u, begin) + part * kRank;
    int to_copy = static_cast<int>(end - begin);
    const auto copy = [&](std::uint32_t to) {
        if (to_copy > 0) {
            constexpr int kApart = kWarp / R::kColumns;
#pragma unroll
            for (int i = 0; i < 2 * R::kAcross; ++i) {
                const int row = copy_row + i * kApart;
                copy_async_16(to + 16 * swizzled<R::kColumns>(row, copy_chunk),
                              from_dy + i * kApart * x.dy.pitch, row < to_copy && copy_inside);
            }
            copy_h<kTiles>(to + R::kOfU, from_u, x.u.pitch, to_copy, lane);
        }
        copy_async_commit();
        from_dy += kStepTokens * x.dy.pitch;
        from_u += kStepTokens * x.u.pitch;
        to_copy -= kStepTokens;
    };
    copy(ring);
    copy(ring + R::kStage);

    std::uint32_t b[kSlices][kTiles][2];
#pragma unroll
    for (int i = 0; i < kSlices * kTiles * 2; ++i) {
        const int tile = i / 2 % kTiles;
        const std::int64_t of = first_column + i / (2 * kTiles) * 16 + i % 2 * 8 + g;
        // Of some row where there is none: no branch before what all lanes do together.
        const std::uint32_t pair = *reinterpret_cast<const std::uint32_t*>(
            bf16_row(x.B, of < last_column ? of : last_column - 1) + part * kRank + 8 * tile +
            2 * t);
        b[i / (2 * kTiles)][tile][i % 2] = transposed(of < last_column ? pair : 0u);
    }

    float sums[kSlices][kTiles][4] = {};
    int buffer = 0;
    int stage = 0;
    for (std::int64_t first = begin; first < end; first += kLoraUpStep) {
        copy_async_wait<kRingStages - 2>();
        __syncwarp();  // all lanes' copies are here, and the stage before is read
        copy(ring + (stage == 0 ? kRingStages - 1 : stage - 1) * R::kStage);
        const std::uint32_t at = ring + stage * R::kStage;
        stage = stage + 1 == kRingStages ? 0 : stage + 1;

        std::uint32_t u[kTiles][2];  // tokens are its rows
        if constexpr (kTiles == 1) {
            std::uint32_t both[4];
            load_matrices_transposed(both, at + R::kOfU + 16 * swizzled<1>(lane % 16, 0));
            u[0][0] = both[0];
            u[0][1] = both[1];
        } else {
#pragma unroll
            for (int tile = 0; tile < kTiles; tile += 2) {
                std::uint32_t both[4];
                load_matrices_transposed(
                    both, at + R::kOfU + 16 * swizzled<kTiles>(lane % 16, tile + lane / 16));
                u[tile][0] = both[0];
                u[tile][1] = both[1];
                u[tile + 1][0] = both[2];
                u[tile + 1][1] = both[3];
            }
        }
        float h[kTiles][4] = {};
#pragma unroll
        for (int slice = 0; slice < kSlices; ++slice) {
            std::uint32_t rows[4];
            std::uint32_t columns[4];
            load_matrices(rows, at + 16 * swizzled<R::kColumns>(lane % 16, 2 * slice + lane / 16));
            load_matrices_transposed(columns,
                                     at + 16 * swizzled<R::kColumns>(lane % 8 + lane / 16 * 8,
                                                                     2 * slice + lane / 8 % 2));
#pragma unroll
            for (int tile = 0; tile < kTiles; ++tile) {
                multiply_add(h[tile], rows, b[slice][tile][0], b[slice][tile][1]);
                multiply_add(sums[slice][tile], columns, u[tile][0], u[tile][1]);
            }
        }

        // Two buffers, so that one barrier a step is enough: a buffer is written again after the barrier
        // that all of its readers come to next.
        float* const held = exchange + buffer * R::kExchange;
#pragma unroll
        for (int i = 0; i < kTiles * 4; ++i)
            held[(warp * kTiles * 4 + i) * kWarp + lane] = h[i / 4][i % 4];
        __syncthreads();
        float* const to =
            x.partial + (chunk * layout.steps + first / kLoraUpStep) * (kTiles * 4 * kWarp);
        for (int i = warp; i < kTiles * 4; i += kWarps) {
            float sum = 0;
#pragma unroll
            for (int other = 0; other < kWarps; ++other)
                sum += held[(other * kTiles * 4 + i) * kWarp + lane];
            to[i * kWarp + lane] = sum;
        }
        buffer = 1 - buffer;
    }

    float* const gradients =
        layout.gradients +
        (blockIdx.y * layout.first_row[kLoraMostParts] + layout.first_row[part]) * kRank;
#pragma unroll
    for (int i = 0; i < kSlices * 2; ++i) {
        const std::int64_t of = first_column + 8 * i + g;
        if (of >= last_column) continue;
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
            const float* const sum = &sums[i / 2][tile][i % 2 * 2];
            *reinterpret_cast<float2*>(gradients + (of - x.begin[part]) * kRank + 8 * tile +
                                       2 * t) = make_float2(sum[0], sum[1]);
        }
    }
}

template <int kTiles>
void start(StreamHandle stream, const LoraUpArguments& x, const UpLayout& layout,
           const LoraCut& cut) {
    constexpr int kBytes = Ring<kTiles>::kBytes;
    const auto kernel = up_backward_kernel<kTiles>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    const dim3 grid(static_cast<unsigned>(lora_up_chunks(x)), static_cast<unsigned>(cut.count));
    launch_early(kernel, grid, dim3(kWarps * kWarp), kBytes, stream, x, layout, cut.each);
}

constexpr int kSumThreads = 128;

// dh of 8 tokens and 8 columns of the tail a warp, in the lanes' order; tail columns of no part are zero.
__device__ __forceinline__ void sum_dh(const LoraUpArguments& x, const UpLayout& layout,
                                       std::int64_t index) {
    const int lane = static_cast<int>(index % kWarp);
    const std::int64_t tile_row = index / kWarp;
    const int heights = x.tail / 8 * 2;
    const std::int64_t step = tile_row / heights;
    const int tile = static_cast<int>(tile_row % heights) / 2;  // of the tail
    const int low = static_cast<int>(tile_row % 2);
    const std::int64_t token = step * kLoraUpStep + 8 * low + lane / 4;
    if (token >= x.tokens) return;
    const int tiles = x.rank / 8;
    const int part = tile / tiles;
    float first = 0;
    float second = 0;
    if (part < x.parts) {
        const std::int64_t size = 4 * kWarp * tiles;
        const int end = layout.first_chunk[part + 1];
        int chunk = layout.first_chunk[part];
        const float* from = x.partial + (chunk * layout.steps + step) * size +
                            (tile % tiles * 4 + 2 * low) * kWarp + lane;
#pragma unroll 4
        for (; chunk < end; ++chunk) {
            first += from[0];
            second += from[kWarp];
            from += layout.steps * size;
        }
    }
    *reinterpret_cast<std::uint32_t*>(static_cast<Bf16*>(x.dh.data) + token * x.dh.pitch +
                                      8 * tile + lane % 4 * 2) = pack(first, second);
}

// Four ranks of an output.
__device__ __forceinline__ void sum_gradient(const LoraUpArguments& x, const UpLayout& layout,
                                             std::int64_t index, std::int64_t pieces) {
    const std::int64_t outputs = layout.first_row[kLoraMostParts];
    const std::int64_t row = index / (x.rank / 4);
    if (row >= outputs) return;
    int part = 0;
    while (row >= layout.first_row[part + 1])
        ++part;
    if (x.B_gradient[part].data == nullptr) return;
    const float* from = layout.gradients + index * 4;
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
        const float4 more = *reinterpret_cast<const float4*>(from);
        sum.x += more.x;
        sum.y += more.y;
        sum.z += more.z;
        sum.w += more.w;
        from += outputs * x.rank;
    }
    float4* const to = reinterpret_cast<float4*>(
        static_cast<float*>(x.B_gradient[part].data) +
        (row - layout.first_row[part]) * x.B_gradient[part].pitch + index % (x.rank / 4) * 4);
    float4 held = *to;
    held.x = fmaf(sum.x, x.scaling, held.x);
    held.y = fmaf(sum.y, x.scaling, held.y);
    held.z = fmaf(sum.z, x.scaling, held.z);
    held.w = fmaf(sum.w, x.scaling, held.w);
    *to = held;
}

// The first blocks have the gradients, whose threads take longest.
__global__ void __launch_bounds__(kSumThreads)
    up_backward_sum_kernel(const __grid_constant__ LoraUpArguments x,
                           const __grid_constant__ UpLayout layout, std::int64_t pieces,
                           std::int64_t gradient_blocks) {
    let_next_begin();
    wait_for_previous();
    const std::int64_t block = blockIdx.x;
    if (block < gradient_blocks)
        sum_gradient(x, layout, block * kSumThreads + threadIdx.x, pieces);
    else
        sum_dh(x, layout, (block - gradient_blocks) * kSumThreads + threadIdx.x);
}

}  // namespace

void lora_up_backward(StreamHandle stream, const LoraUpArguments& x) {
    const LoraCut cut = lora_up_cut(x);
    const UpLayout layout = up_layout(x);
    if (x.rank == 8)
        start<1>(stream, x, layout, cut);
    else if (x.rank == 16)
        start<2>(stream, x, layout, cut);
    else
        start<4>(stream, x, layout, cut);
    check_launch("lora_up_backward");
    const auto blocks = [](std::int64_t threads) {
        return (threads + kSumThreads - 1) / kSumThreads;
    };
    const std::int64_t of_gradients = blocks(lora_up_outputs(x) * (x.rank / 4));
    const std::int64_t of_dh = blocks(layout.steps * (x.tail / 8 * 2) * kWarp);
    launch_early(up_backward_sum_kernel, dim3(static_cast<unsigned>(of_gradients + of_dh)),
                 dim3(kSumThreads), 0, stream, x, layout, cut.count, of_gradients);
    check_launch("lora_up_backward_sum");
}

}  // namespace garam::cuda
