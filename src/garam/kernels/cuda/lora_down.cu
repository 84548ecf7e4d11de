// u = [mask_0(x) A_0' | …] of one reading of x, and the masks' bits. A block has 32 tokens, 16 a warp; four
// warps of the same tokens share the columns and add up at the end. Where there are few tokens, several
// blocks share the columns and leave their sums in scratch, which a second kernel adds in order.
#include <algorithm>

#include "garam/kernels/cuda/early_launch.cuh"
#include "garam/kernels/cuda/lora_tiles.cuh"

namespace garam::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kHigh = 2;  // warps of different tokens
constexpr int kRows = 2;  // of a lane: g and g + 8 of its warp's
// A warp's unit: the columns of four words of a row's bits, a word each of its steps. It copies the next one
// while it works on one: 256 bytes of a row at once, which the memory likes better than 64 now and then.
constexpr int kSteps = static_cast<int>(kLoraDownSteps);
constexpr std::int64_t kUnit = kSteps * kLoraColumns;
static_assert(kWarps / kHigh * kUnit == kLoraDownColumns);
static_assert(kSteps == 4);
constexpr std::uint32_t kStepBytes = kRows * kWarp * 16;
constexpr std::uint32_t kUnitBytes = kSteps * kStepBytes;

// Two units of each warp, and in the same memory at the end what the warps exchange.
template <int kParts, int kTiles>
constexpr int kSharedBytes = std::max<int>(kWarps * 2 * kUnitBytes,
                                           kWarps / 2 * kParts * kTiles * 4 * kWarp * 4);

// What lanes 4g … 4g + 3 have kept of a row in four steps, as words of 32 columns of one step each, word t in
// lane t: the nibble of lane i and step j, one in either half of a word, becomes that of lane j and step i.
__device__ __forceinline__ std::uint32_t word_of_step(std::uint32_t kept, int t) {
    const std::uint32_t own = t % 2 == 0 ? 0x0f0f0f0fu : 0xf0f0f0f0u;
    std::uint32_t other = __shfl_xor_sync(0xffffffffu, kept, 1);
    other = __funnelshift_l(other, other, t % 2 == 0 ? 4 : 28);
    kept = (kept & own) | (other & ~own);
    other = __shfl_xor_sync(0xffffffffu, kept, 2);
    return __byte_perm(kept, other, t < 2 ? 0x6240 : 0x3715);
}

template <int kParts, int kTiles>
__global__ void __launch_bounds__(kWarps* kWarp, 2)
    down_kernel(const __grid_constant__ LoraArguments x, const __grid_constant__ LoraKeys keys,
                std::int64_t units) {
    constexpr int kRank = 8 * kTiles;
    constexpr int kSums = kParts * kTiles * 4;
    extern __shared__ uint4 dynamic[];
    __shared__ uint4 mask_rows[kParts][kLoraDownTokens];
    let_next_begin();
    wait_for_previous();
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int g = lane / 4;
    const int t = lane % 4;
    const std::int64_t first_token = static_cast<std::int64_t>(blockIdx.x) * kLoraDownTokens;
    const int first_row = warp % kHigh * 16 + g;                   // of the lane, in the block
    const std::int64_t left = x.tokens - first_token - first_row;  // rows until the end
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * units * kLoraDownColumns;
    const std::int64_t end = min(begin + units * kLoraDownColumns, x.in);
    const std::int64_t first_unit = begin + warp / kHigh * kUnit;

    // Of the two units a lane reads what it copied itself.
    std::uint32_t here = shared_address(dynamic) + warp * (2 * kUnitBytes) + lane * 16;
    std::uint32_t there = here + kUnitBytes;
    const Bf16* const rows = bf16_row(x.x, first_token + first_row) + 8 * t;
    const auto copy = [&](std::uint32_t to, std::int64_t unit) {
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
#pragma unroll
            for (int step = 0; step < kSteps; ++step) {
                const std::int64_t column = unit + step * kLoraColumns;
                copy_async_16(to + step * kStepBytes + i * (kWarp * 16),
                              rows + 8 * i * x.x.pitch + column,
                              8 * i < left && column + 8 * t < end);
            }
        }
        copy_async_commit();
    };
    copy(here, first_unit);

    for (int i = static_cast<int>(threadIdx.x); i < kParts * kLoraDownTokens; i += kWarps * kWarp) {
        const int part = i / kLoraDownTokens;
        const int row = i % kLoraDownTokens;
        mask_rows[part][row] = lora_mask_row(keys.of[part], lora_token(x, first_token + row));
    }
    __syncthreads();

    float sums[kSums] = {};
    for (std::int64_t unit = first_unit; unit < end; unit += kLoraDownColumns) {
        copy_async_wait<0>();
        if (unit + kLoraDownColumns < end) copy(there, unit + kLoraDownColumns);
        std::uint32_t kept[kParts][kRows] = {};
#pragma unroll 1
        for (int step = 0; step < kSteps; ++step) {
            const std::int64_t column = unit + step * kLoraColumns + 8 * t;
            uint4 now[kRows];
#pragma unroll
            for (int i = 0; i < kRows; ++i)
                now[i] = load_shared_16(here + step * kStepBytes + i * (kWarp * 16));
            const auto group = static_cast<std::uint32_t>(column / 8);
            // Where x has ended it is zero, and A's column is any.
            const std::int64_t of_A = column < end ? column : 0;
            const std::uint32_t first_two = 0x00010001u << 4 * step;  // bits of the step
#pragma unroll
            for (int part = 0; part < kParts; ++part) {
                uint4 b[kTiles];
#pragma unroll
                for (int tile = 0; tile < kTiles; ++tile)
                    b[tile] = *reinterpret_cast<const uint4*>(
                        bf16_row(x.A, part * kRank + 8 * tile + g) + of_A);
                uint4 in_part[kRows];
#pragma unroll
                for (int i = 0; i < kRows; ++i) {
                    const uint4 words =
                        lora_words(keys.of[part], mask_rows[part][first_row + 8 * i], group);
                    const std::uint32_t halves[4] = {
                        kept_halves(words.x, keys), kept_halves(words.y, keys),
                        kept_halves(words.z, keys), kept_halves(words.w, keys)};
                    in_part[i] = make_uint4(now[i].x & halves[0], now[i].y & halves[1],
                                            now[i].z & halves[2], now[i].w & halves[3]);
#pragma unroll
                    for (int j = 0; j < 4; ++j)
                        kept[part][i] |= halves[j] & first_two << j;
                }
                const uint4& top = in_part[0];
                const uint4& low = in_part[1];
                const std::uint32_t first[4] = {top.x, low.x, top.y, low.y};
                const std::uint32_t second[4] = {top.z, low.z, top.w, low.w};
#pragma unroll
                for (int tile = 0; tile < kTiles; ++tile) {
                    float(&sum)[4] =
                        *reinterpret_cast<float(*)[4]>(&sums[(part * kTiles + tile) * 4]);
                    multiply_add(sum, first, b[tile].x, b[tile].y);
                    multiply_add(sum, second, b[tile].z, b[tile].w);
                }
            }
        }
        const std::uint32_t read = here;
        here = there;
        there = read;
        if (x.kept == nullptr) continue;
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
#pragma unroll
            for (int i = 0; i < kRows; ++i) {
                const std::uint32_t word = word_of_step(kept[part][i], t);
                if (8 * i < left)
                    *(kept_word(x, first_token + first_row + 8 * i, part, unit) + t) = word;
            }
        }
    }

    copy_async_wait<0>();
    __syncthreads();  // all units are read
    add_warps<kWarps, kHigh>(sums, reinterpret_cast<float*>(dynamic));
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
    let_next_begin();
    wait_for_previous();
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
        constexpr int kBytes = kSharedBytes<kParts, kTiles>;
        const auto kernel = down_kernel<kParts, kTiles>;
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
        launch_early(kernel, grid, dim3(kWarps * kWarp), kBytes, stream, x, keys, cut.each);
    });
    check_launch("lora_down");
    if (cut.count == 1) return;
    constexpr int kThreads = 256;
    const std::int64_t blocks = (x.tokens * (x.tail / 2) + kThreads - 1) / kThreads;
    launch_early(down_sum_kernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, stream, x,
                 cut.count);
    check_launch("lora_down_sum");
}

}  // namespace garam::cuda
