// dh = dy B and B_gradient_m += scaling * dy_m' u_m of one reading of dy. A warp keeps 64 columns of one part
// (32 of rank 32): of B in registers, of the gradient as sums. It goes through a piece of the tokens, 16 a
// step, and the 8 warps of a block, side by side, add up their parts of dh at every step. These and the
// pieces' gradients lie in scratch, and a second kernel adds them in order.
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

// Parts of dh lie as the lanes hold them: [chunks, steps, kTiles * 4, 32].
template <int kTiles>
__global__ void __launch_bounds__(kWarps* kWarp, 2)
    up_backward_kernel(const __grid_constant__ LoraUpArguments x,
                       const __grid_constant__ UpLayout layout, std::int64_t units) {
    constexpr int kRank = 8 * kTiles;
    constexpr int kAcross = kTiles <= 2 ? 2 : 1;  // times 32 columns a warp
    __shared__ float shared[2][kWarps][kTiles * 4][kWarp];
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int g = lane / 4;
    const int t = lane % 4;
    const int chunk = static_cast<int>(blockIdx.x);
    int part = 0;
    while (chunk >= layout.first_chunk[part + 1])
        ++part;
    const std::int64_t first_column =
        x.begin[part] +
        static_cast<std::int64_t>((chunk - layout.first_chunk[part]) * kWarps + warp) *
            (kAcross * kLoraColumns);
    const std::int64_t last_column = x.end[part];
    const std::int64_t column = first_column + 8 * t;

    std::uint32_t b[kAcross][kTiles][4];
#pragma unroll
    for (int i = 0; i < kAcross * kTiles * 4; ++i) {
        const int tile = i / 4 % kTiles;
        const std::int64_t of = column + i / (4 * kTiles) * kLoraColumns + i % 4 * 2;
        const int rank = part * kRank + 8 * tile + g;
        b[i / (4 * kTiles)][tile][i % 4] =
            of < last_column ? pair_of_rows(bf16_row(x.B, of) + rank, bf16_row(x.B, of + 1) + rank)
                             : 0u;
    }

    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * units * kLoraUpTokens;
    const std::int64_t end = min(begin + units * kLoraUpTokens, x.tokens);
    float sums[kAcross][2][kTiles][4] = {};
    uint4 next[kAcross][2];
    std::uint32_t next_u[kTiles][2];
    const auto load = [&](std::int64_t token) {
#pragma unroll
        for (int low = 0; low < 2; ++low) {
            const std::int64_t row = token + 8 * low;
#pragma unroll
            for (int across = 0; across < kAcross; ++across) {
                const std::int64_t from = column + across * kLoraColumns;
                next[across][low] =
                    load_or_zero(bf16_row(x.dy, row) + from, row < end && from < last_column);
            }
#pragma unroll
            for (int tile = 0; tile < kTiles; ++tile)
                next_u[tile][low] = row < end
                                        ? *reinterpret_cast<const std::uint32_t*>(
                                              bf16_row(x.u, row) + part * kRank + 8 * tile + 2 * t)
                                        : 0u;
        }
    };
    load(begin + g);
    int buffer = 0;
    for (std::int64_t first = begin; first < end; first += kLoraUpStep) {
        uint4 now[kAcross][2];
        std::uint32_t u[kTiles][2];
#pragma unroll
        for (int low = 0; low < 2; ++low) {
#pragma unroll
            for (int across = 0; across < kAcross; ++across)
                now[across][low] = next[across][low];
#pragma unroll
            for (int tile = 0; tile < kTiles; ++tile)
                u[tile][low] = transposed(next_u[tile][low]);
        }
        load(first + kLoraUpStep + g);

        float h[kTiles][4] = {};
#pragma unroll
        for (int across = 0; across < kAcross; ++across) {
            const uint4 top = now[across][0];
            const uint4 low = now[across][1];
            const std::uint32_t rows[2][4] = {{top.x, low.x, top.y, low.y},
                                              {top.z, low.z, top.w, low.w}};
            const std::uint32_t columns[2][4] = {
                {transposed(top.x), transposed(top.y), transposed(low.x), transposed(low.y)},
                {transposed(top.z), transposed(top.w), transposed(low.z), transposed(low.w)}};
#pragma unroll
            for (int half = 0; half < 2; ++half) {
#pragma unroll
                for (int tile = 0; tile < kTiles; ++tile) {
                    multiply_add(h[tile], rows[half], b[across][tile][2 * half],
                                 b[across][tile][2 * half + 1]);
                    multiply_add(sums[across][half][tile], columns[half], u[tile][0], u[tile][1]);
                }
            }
        }

        // Two buffers, so that one barrier a step is enough: a buffer is written again after the barrier
        // that all of its readers come to next.
#pragma unroll
        for (int i = 0; i < kTiles * 4; ++i)
            shared[buffer][warp][i][lane] = h[i / 4][i % 4];
        __syncthreads();
        float* const to =
            x.partial + (chunk * layout.steps + first / kLoraUpStep) * (kTiles * 4 * kWarp);
        for (int i = warp; i < kTiles * 4; i += kWarps) {
            float sum = 0;
#pragma unroll
            for (int other = 0; other < kWarps; ++other)
                sum += shared[buffer][other][i][lane];
            to[i * kWarp + lane] = sum;
        }
        buffer = 1 - buffer;
    }

    float* const gradients =
        layout.gradients +
        (blockIdx.y * layout.first_row[kLoraMostParts] + layout.first_row[part]) * kRank;
#pragma unroll
    for (int i = 0; i < kAcross * 4; ++i) {  // register i % 4 of lora_tiles.cuh, row g of its tile
        const std::int64_t of =
            first_column + i / 4 * kLoraColumns + 8 * (g / 2) + i % 4 * 2 + g % 2;
        if (of >= last_column) continue;
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
            const float* const sum = &sums[i / 4][i % 4 / 2][tile][i % 2 * 2];
            *reinterpret_cast<float2*>(gradients + (of - x.begin[part]) * kRank + 8 * tile +
                                       2 * t) = make_float2(sum[0], sum[1]);
        }
    }
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
    const dim3 grid(static_cast<unsigned>(lora_up_chunks(x)), static_cast<unsigned>(cut.count));
    if (x.rank == 8)
        up_backward_kernel<1><<<grid, kWarps * kWarp, 0, stream>>>(x, layout, cut.each);
    else if (x.rank == 16)
        up_backward_kernel<2><<<grid, kWarps * kWarp, 0, stream>>>(x, layout, cut.each);
    else
        up_backward_kernel<4><<<grid, kWarps * kWarp, 0, stream>>>(x, layout, cut.each);
    check_launch("lora_up_backward");
    const auto blocks = [](std::int64_t threads) {
        return (threads + kSumThreads - 1) / kSumThreads;
    };
    const std::int64_t of_gradients = blocks(lora_up_outputs(x) * (x.rank / 4));
    const std::int64_t of_dh = blocks(layout.steps * (x.tail / 8 * 2) * kWarp);
    up_backward_sum_kernel<<<static_cast<unsigned>(of_gradients + of_dh), kSumThreads, 0, stream>>>(
        x, layout, cut.count, of_gradients);
    check_launch("lora_up_backward_sum");
}

}  // namespace garam::cuda
