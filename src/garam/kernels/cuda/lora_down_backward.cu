// A_gradient_m += dh_m' mask_m(x) of one reading of x. A block has 64 columns (two warps side by side) and
// a piece of the tokens (four warps, 16 tokens each a step), which add up at the end; the pieces lie in
// scratch, and a second kernel adds them in order.
#include "garam/kernels/cuda/lora_tiles.cuh"

namespace garam::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kAcross = 2;

template <int kParts, int kTiles, Masking kMasking>
__global__ void __launch_bounds__(kWarps* kWarp, 2)
    down_backward_kernel(const __grid_constant__ LoraArguments x,
                         const __grid_constant__ LoraKeys keys, std::int64_t units) {
    constexpr int kRank = 8 * kTiles;
    constexpr int kHeights = (kTiles + 1) / 2;  // tiles of 16 ranks
    constexpr int kSums = kParts * kHeights * 4 * 4;
    __shared__ float shared[kWarps / 2 * kSums * kWarp];
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int g = lane / 4;
    const int t = lane % 4;
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kLoraBackwardColumns +
                                warp % kAcross * kLoraColumns + 8 * t;
    const bool column_inside = column < x.in;
    const auto group = static_cast<std::uint32_t>(column / 4);
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * units * kLoraBackwardTokens;
    const std::int64_t end = min(begin + units * kLoraBackwardTokens, x.tokens);

    float sums[kSums] = {};
    std::int64_t token = begin + warp / kAcross * 16 + g;
    const auto load = [&](std::int64_t row) {
        return load_or_zero(bf16_row(x.x, row) + column, column_inside && row < end);
    };
    uint4 next[2] = {load(token), load(token + 8)};
    for (; token - g < end; token += kLoraBackwardTokens) {
        const uint4 now[2] = {next[0], next[1]};
        next[0] = load(token + kLoraBackwardTokens);
        next[1] = load(token + kLoraBackwardTokens + 8);
        TokenMask tokens[2] = {};
        if constexpr (kMasking == Masking::make) {
            tokens[0] = lora_token(x, token);
            tokens[1] = lora_token(x, token + 8);
        }
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
            // dh' of the step: ranks are the rows.
            std::uint32_t a[kHeights][4];
#pragma unroll
            for (int i = 0; i < kHeights * 4; ++i) {
                const int tile = i / 4 * 2 + i % 2;
                const std::int64_t row = token + i / 2 % 2 * 8;
                std::uint32_t pair = 0;
                if (tile < kTiles && row < end)
                    pair = *reinterpret_cast<const std::uint32_t*>(bf16_row(x.h, row) +
                                                                   part * kRank + 8 * tile + 2 * t);
                a[i / 4][i % 4] = tile < kTiles ? transposed(pair) : 0u;
            }
            uint4 in_part[2] = {now[0], now[1]};
            if constexpr (kMasking != Masking::none) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const bool counts = column_inside && token + 8 * i < end;
                    std::uint8_t* const kept = counts && x.kept != nullptr
                                                   ? kept_byte(x, token + 8 * i, part, column)
                                                   : nullptr;
                    if constexpr (kMasking == Masking::make)
                        in_part[i] = masked(now[i], keys, part,
                                            lora_mask_row(keys.of[part], tokens[i]), group, kept);
                    else
                        in_part[i] = masked_by(now[i], kept_bits_of(x, token + 8 * i, part, column, counts));
                }
            }
            const uint4& top = in_part[0];
            const uint4& low = in_part[1];
            const std::uint32_t b[4][2] = {{transposed(top.x), transposed(low.x)},
                                           {transposed(top.y), transposed(low.y)},
                                           {transposed(top.z), transposed(low.z)},
                                           {transposed(top.w), transposed(low.w)}};
#pragma unroll
            for (int height = 0; height < kHeights; ++height) {
#pragma unroll
                for (int tile = 0; tile < 4; ++tile) {
                    float(&sum)[4] = *reinterpret_cast<float(*)[4]>(
                        &sums[((part * kHeights + height) * 4 + tile) * 4]);
                    multiply_add(sum, a[height], b[tile][0], b[tile][1]);
                }
            }
        }
    }

    add_warps<kWarps, kAcross>(sums, shared);
    if (warp >= kAcross || !column_inside) return;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int tall = 0; tall < kTiles; ++tall) {  // 8 ranks
            const std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * (kParts * kRank) +
                                     part * kRank + 8 * tall + g;
            float4* const to = reinterpret_cast<float4*>(x.partial + row * x.in + column);
            const float* const sum = &sums[(part * kHeights + tall / 2) * 16 + tall % 2 * 2];
            to[0] = make_float4(sum[0], sum[1], sum[4], sum[5]);
            to[1] = make_float4(sum[8], sum[9], sum[12], sum[13]);
        }
    }
}

// A thread four columns of a row.
__global__ void down_backward_sum_kernel(const __grid_constant__ LoraArguments x,
                                         std::int64_t pieces) {
    const std::int64_t column =
        (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
    const int row = static_cast<int>(blockIdx.y);
    if (column >= x.in) return;
    const int part = row / x.rank;
    const Rows& gradient = part == 0   ? x.A_gradient[0]
                           : part == 1 ? x.A_gradient[1]
                                       : x.A_gradient[2];
    if (gradient.data == nullptr) return;
    const float factor = x.masks.active ? x.masks.common.factor : 1.0f;
    const std::int64_t step = static_cast<std::int64_t>(x.parts) * x.rank * x.in;
    const float* from = x.partial + row * x.in + column;
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 4
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
        const float4 more = *reinterpret_cast<const float4*>(from + piece * step);
        sum.x += more.x;
        sum.y += more.y;
        sum.z += more.z;
        sum.w += more.w;
    }
    float4* const to = reinterpret_cast<float4*>(static_cast<float*>(gradient.data) +
                                                 row % x.rank * gradient.pitch + column);
    float4 held = *to;
    held.x = fmaf(sum.x, factor, held.x);
    held.y = fmaf(sum.y, factor, held.y);
    held.z = fmaf(sum.z, factor, held.z);
    held.w = fmaf(sum.w, factor, held.w);
    *to = held;
}

}  // namespace

void lora_down_backward(StreamHandle stream, const LoraArguments& x) {
    const LoraCut cut = lora_down_backward_cut(x.tokens, x.in, x.multiprocessors);
    const LoraKeys keys = lora_keys(x.masks);
    const dim3 grid(static_cast<unsigned>((x.in + kLoraBackwardColumns - 1) / kLoraBackwardColumns),
                    static_cast<unsigned>(cut.count));
    for_lora_shape(x.parts, x.rank, [&]<int kParts, int kTiles>(LoraShape<kParts, kTiles>) {
        const auto start = [&]<Masking kMasking>(LoraMasking<kMasking>) {
            down_backward_kernel<kParts, kTiles, kMasking>
                <<<grid, kWarps * kWarp, 0, stream>>>(x, keys, cut.each);
        };
        if (x.masks.active)
            for_masking(x, start);
        else
            start(LoraMasking<Masking::none>{});
    });
    check_launch("lora_down_backward");
    constexpr int kThreads = 128;
    const dim3 sum_grid(static_cast<unsigned>((x.in / 4 + kThreads - 1) / kThreads),
                        static_cast<unsigned>(x.parts * x.rank));
    down_backward_sum_kernel<<<sum_grid, kThreads, 0, stream>>>(x, cut.count);
    check_launch("lora_down_backward_sum");
}

}  // namespace garam::cuda
