// u = [mask_0(x) A_0' | …] of one reading of x. A block has 32 tokens, 16 a warp; four warps of the same
// tokens share the columns and add up at the end. Where there are few tokens, several blocks share the
// columns and leave their sums in scratch, which a second kernel adds in order.
#include "garam/kernels/cuda/lora_tiles.cuh"

namespace garam::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kHigh = 2;  // warps of different tokens
constexpr int kRows = 2;  // of a lane: g and g + 8 of its warp's
constexpr std::int64_t kStep = kWarps / kHigh * kLoraColumns;
static_assert(kStep == kLoraDownColumns);

template <int kParts, int kTiles, Masking kMasking>
__global__ void __launch_bounds__(kWarps* kWarp, 2)
    down_kernel(const __grid_constant__ LoraArguments x, const __grid_constant__ LoraKeys keys,
                std::int64_t units) {
    constexpr int kRank = 8 * kTiles;
    constexpr int kSums = kParts * kTiles * 4;
    __shared__ float shared[kWarps / 2 * kSums * kWarp];
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int g = lane / 4;
    const int t = lane % 4;
    const std::int64_t first_token = static_cast<std::int64_t>(blockIdx.x) * kLoraDownTokens;

    __shared__ uint4 stages[kWarps][kRingStages][kRows][kWarp];
    __shared__ uint4 mask_rows[kParts][kLoraDownTokens];
    if constexpr (kMasking == Masking::make) {
        for (int i = static_cast<int>(threadIdx.x); i < kParts * kLoraDownTokens;
             i += kWarps * kWarp) {
            const int part = i / kLoraDownTokens;
            const int row = i % kLoraDownTokens;
            mask_rows[part][row] = lora_mask_row(keys.of[part], lora_token(x, first_token + row));
        }
        __syncthreads();
    }

    const int first_row = warp % kHigh * 16 + g;  // of the lane, in the block
    const Bf16* const rows = bf16_row(x.x, first_token + first_row);
    const std::int64_t left = x.tokens - first_token - first_row;  // rows until the end
    // A warp's steps are the warps' number apart.
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * units * kLoraDownColumns;
    const std::int64_t end = min(begin + units * kLoraDownColumns, x.in);
    std::int64_t column = begin + warp / kHigh * kLoraColumns + 8 * t;
    float sums[kSums] = {};
    // Of the ring a lane reads what it copied itself.
    const std::uint32_t ring = shared_address(&stages[warp][0][0][lane]);
    constexpr std::uint32_t kStage = kRows * kWarp * sizeof(uint4);
    std::int64_t to_copy = column;
    const auto copy = [&](std::uint32_t to) {
#pragma unroll
        for (int i = 0; i < kRows; ++i)
            copy_async_16(to + i * (kWarp * sizeof(uint4)), rows + 8 * i * x.x.pitch + to_copy,
                          8 * i < left && to_copy < end);
        copy_async_commit();
        to_copy += kStep;
    };
    copy(ring);
    copy(ring + kStage);
    int stage = 0;
    for (; column - 8 * t < end; column += kStep) {
        copy_async_wait<kRingStages - 2>();
        uint4 now[kRows];
#pragma unroll
        for (int i = 0; i < kRows; ++i)
            now[i] = load_shared_16(ring + stage * kStage + i * (kWarp * sizeof(uint4)));
        copy(ring + (stage == 0 ? kRingStages - 1 : stage - 1) * kStage);
        stage = stage + 1 == kRingStages ? 0 : stage + 1;
        const auto group = static_cast<std::uint32_t>(column / 4);
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
            uint4 b[kTiles];
#pragma unroll
            for (int tile = 0; tile < kTiles; ++tile)
                b[tile] =
                    load_or_zero(bf16_row(x.A, part * kRank + 8 * tile + g) + column, column < end);
            uint4 in_part[kRows];
#pragma unroll
            for (int i = 0; i < kRows; ++i) {
                const int row = first_row + 8 * i;
                const bool counts = 8 * i < left && column < end;
                std::uint8_t* const kept = counts && x.kept != nullptr
                                               ? kept_byte(x, first_token + row, part, column)
                                               : nullptr;
                if constexpr (kMasking == Masking::make)
                    in_part[i] = masked(now[i], keys, part, mask_rows[part][row], group, kept);
                else
                    in_part[i] =
                        masked_by(now[i], kept_bits_of(x, first_token + row, part, column, counts));
            }
            const uint4& top = in_part[0];
            const uint4& low = in_part[1];
            const std::uint32_t first[4] = {top.x, low.x, top.y, low.y};
            const std::uint32_t second[4] = {top.z, low.z, top.w, low.w};
#pragma unroll
            for (int tile = 0; tile < kTiles; ++tile) {
                float(&sum)[4] = *reinterpret_cast<float(*)[4]>(&sums[(part * kTiles + tile) * 4]);
                multiply_add(sum, first, b[tile].x, b[tile].y);
                multiply_add(sum, second, b[tile].z, b[tile].w);
            }
        }
    }

    add_warps<kWarps, kHigh>(sums, shared);
    if (gridDim.y == 1 && warp == kHigh) {
        const std::int64_t token = first_token + lane;
        if (token < x.tokens) {
            Bf16* const out = static_cast<Bf16*>(x.h.data) + token * x.h.pitch;
            for (int i = kParts * kRank; i < x.tail; i += 8)
                *reinterpret_cast<uint4*>(out + i) = make_uint4(0, 0, 0, 0);
        }
    }
    if (warp >= kHigh) return;
#pragma unroll
    for (int low = 0; low < 2; ++low) {
        const std::int64_t token = first_token + first_row + 8 * low;
        if (token >= x.tokens) continue;
#pragma unroll
        for (int tile = 0; tile < kParts * kTiles; ++tile) {
            const float* const sum = &sums[tile * 4 + 2 * low];
            const int to = 8 * tile + 2 * t;
            if (gridDim.y == 1) {
                *reinterpret_cast<std::uint32_t*>(static_cast<Bf16*>(x.h.data) + token * x.h.pitch +
                                                  to) =
                    pack(sum[0] * x.masks.common.factor, sum[1] * x.masks.common.factor);
            } else {
                *reinterpret_cast<float2*>(
                    x.partial + (blockIdx.y * x.tokens + token) * (kParts * kRank) + to) =
                    make_float2(sum[0], sum[1]);
            }
        }
    }
}

// A thread two columns of u.
__global__ void down_sum_kernel(const __grid_constant__ LoraArguments x, std::int64_t pieces) {
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const int pairs = x.tail / 2;
    const std::int64_t token = index / pairs;
    const int column = static_cast<int>(index % pairs) * 2;
    if (token >= x.tokens) return;
    const int columns = x.parts * x.rank;
    float2 sum = make_float2(0, 0);
    if (column < columns) {
        for (std::int64_t piece = 0; piece < pieces; ++piece) {
            const float2 more = *reinterpret_cast<const float2*>(
                x.partial + (piece * x.tokens + token) * columns + column);
            sum.x += more.x;
            sum.y += more.y;
        }
    }
    *reinterpret_cast<std::uint32_t*>(static_cast<Bf16*>(x.h.data) + token * x.h.pitch + column) =
        pack(sum.x * x.masks.common.factor, sum.y * x.masks.common.factor);
}

}  // namespace

void lora_down(StreamHandle stream, const LoraArguments& x) {
    const LoraCut cut = lora_down_cut(x.tokens, x.in, x.multiprocessors);
    const LoraKeys keys = lora_keys(x.masks);
    const dim3 grid(static_cast<unsigned>((x.tokens + kLoraDownTokens - 1) / kLoraDownTokens),
                    static_cast<unsigned>(cut.count));
    for_lora_shape(x.parts, x.rank, [&]<int kParts, int kTiles>(LoraShape<kParts, kTiles>) {
        for_masking(x, [&]<Masking kMasking>(LoraMasking<kMasking>) {
            down_kernel<kParts, kTiles, kMasking>
                <<<grid, kWarps * kWarp, 0, stream>>>(x, keys, cut.each);
        });
    });
    check_launch("lora_down");
    if (cut.count == 1) return;
    constexpr int kThreads = 256;
    const std::int64_t blocks = (x.tokens * (x.tail / 2) + kThreads - 1) / kThreads;
    down_sum_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(x, cut.count);
    check_launch("lora_down_sum");
}

}  // namespace garam::cuda
