// A_gradient_m += dh_m' mask_m(x) of one reading of x. A block has 32 or 64 columns and a piece of the tokens;
// each of its warps has 16 tokens a step and all columns, reads tiles of x and dh transposed out of shared
// memory, and all add up at the end. The pieces lie in scratch, and a second kernel adds them in order.
#include "garam/kernels/cuda/early_launch.cuh"
#include "garam/kernels/cuda/lora_tiles.cuh"

namespace garam::cuda {
namespace {

template <int kParts, int kTiles>
struct Ring {
    static constexpr int kHeights = (kTiles + 1) / 2;               // tiles of 16 ranks
    static constexpr int kAcross = kParts * kHeights <= 3 ? 2 : 1;  // times 32 columns
    static constexpr int kSums = kParts * kHeights * kAcross * 4 * 4;
    // Sums of three parts want more registers than 16 warps have.
    static constexpr int kWarps = kSums > 64 ? 4 : 8;
    static constexpr int kBlocks = kSums > 64 ? kLoraMostBlocksEach : kLoraBlocksEach;
    static constexpr int kTokens = kWarps * kStepTokens;
    static constexpr int kColumns = 4 * kAcross;              // chunks of 16 bytes
    static constexpr int kRanks = kParts * kTiles;            // chunks of dh
    static constexpr int kOfH = kStepTokens * kColumns * 16;  // where in a stage
    static constexpr int kOfBits = kOfH + kStepTokens * kRanks * 16;
    static constexpr int kStage = kOfBits + kParts * kAcross * kStepTokens * 4;
    static constexpr int kRing = kWarps * kRingStages * kStage;
    static constexpr int kExchange = kWarps / 2 * kSums * kWarp * 4;
    static constexpr int kBytes = kRing > kExchange ? kRing : kExchange;
};

template <int kWords>
__device__ __forceinline__ void copy_words(std::uint32_t to, const std::uint32_t* from,
                                           bool inside) {
    if constexpr (kWords == 1)
        copy_async_4(to, from, inside);
    else
        copy_async_8(to, from, inside);
}

// volatile: loads of neighbouring words are not to become one, for whose registers others would be spilled.
__device__ __forceinline__ std::uint32_t load_word(std::uint32_t shared) {
    std::uint32_t x;
    asm volatile("ld.volatile.shared.b32 %0, [%1];\n" : "=r"(x) : "r"(shared) : "memory");
    return x;
}

template <int kParts, int kTiles, bool kMasked>
__global__ void __launch_bounds__(Ring<kParts, kTiles>::kWarps* kWarp,
                                  Ring<kParts, kTiles>::kBlocks)
    down_backward_kernel(const __grid_constant__ LoraArguments x, std::int64_t units) {
    using R = Ring<kParts, kTiles>;
    constexpr int kRank = 8 * kTiles;
    constexpr int kAcross = R::kAcross;
    constexpr int kHeights = R::kHeights;
    extern __shared__ uint4 dynamic[];
    let_next_begin();
    wait_for_previous();
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int g = lane / 4;
    const int t = lane % 4;
    const std::uint32_t ring = shared_address(dynamic) + warp * (kRingStages * R::kStage);
    const std::int64_t first_column =
        static_cast<std::int64_t>(blockIdx.x) * (kAcross * kLoraColumns);
    const std::int64_t begin =
        static_cast<std::int64_t>(blockIdx.y) * units * R::kTokens + warp * kStepTokens;
    const std::int64_t end =
        min(static_cast<std::int64_t>(blockIdx.y + 1) * units * R::kTokens, x.tokens);

    // The lane's next copies, and the rows from there to the end.
    const int x_row = lane / R::kColumns;
    const int x_chunk = lane % R::kColumns;
    const bool x_inside = first_column + 8 * x_chunk < x.in;
    const int h_row = lane / 2;
    const Bf16* from_x = bf16_row(x.x, begin + x_row) + first_column + 8 * x_chunk;
    const Bf16* from_h = bf16_row(x.h, begin);
    const std::uint32_t* from_bits =
        kMasked ? kept_word(x, begin + h_row, 0, first_column) : nullptr;
    int to_copy = static_cast<int>(end - begin);
    const auto copy = [&](std::uint32_t to) {
        if (to_copy > 0) {
#pragma unroll
            for (int i = 0; i < 2 * kAcross; ++i) {
                const int row = x_row + i * (kWarp / R::kColumns);
                copy_async_16(to + 16 * swizzled<R::kColumns>(row, x_chunk),
                              from_x + i * (kWarp / R::kColumns) * x.x.pitch,
                              row < to_copy && x_inside);
            }
            copy_h<R::kRanks>(to + R::kOfH, from_h, x.h.pitch, to_copy, lane);
            if constexpr (kMasked) {
#pragma unroll
                for (int i = 0; i < (kParts + 1) / 2; ++i) {
                    const int part = 2 * i + lane % 2;
                    if (part < kParts)
                        copy_words<kAcross>(
                            to + R::kOfBits + 4 * kAcross * (part * kStepTokens + h_row),
                            from_bits + part * lora_kept_words(x.in), h_row < to_copy);
                }
                from_bits += R::kTokens * x.parts * lora_kept_words(x.in);
            }
        }
        copy_async_commit();
        from_x += R::kTokens * x.x.pitch;
        from_h += R::kTokens * x.h.pitch;
        to_copy -= R::kTokens;
    };

    float sums[R::kSums] = {};
    copy(ring);
    copy(ring + R::kStage);
    int stage = 0;
    for (int left = static_cast<int>(end - begin); left > 0; left -= R::kTokens) {
        copy_async_wait<kRingStages - 2>();
        __syncwarp();  // all lanes' copies are here, and the stage before is read
        copy(ring + (stage == 0 ? kRingStages - 1 : stage - 1) * R::kStage);
        const std::uint32_t at = ring + stage * R::kStage;
        stage = stage + 1 == kRingStages ? 0 : stage + 1;
#pragma unroll
        for (int across = 0; across < kAcross; ++across) {
            std::uint32_t columns[2][4];  // of two tiles: tokens 0 to 7 and 8 to 15, twice
#pragma unroll
            for (int i = 0; i < 2; ++i)
                load_matrices_transposed(
                    columns[i],
                    at + 16 * swizzled<R::kColumns>(lane % 16, 4 * across + 2 * i + lane / 16));
#pragma unroll
            for (int part = 0; part < kParts; ++part) {
                std::uint32_t a[kHeights][4];
#pragma unroll
                for (int height = 0; height < kHeights; ++height) {
                    // Of 8 ranks the lower half of the product is nobody's.
                    const int chunk = part * kTiles + (kTiles == 1 ? 0 : 2 * height + lane / 8 % 2);
                    load_matrices_transposed(
                        a[height],
                        at + R::kOfH + 16 * swizzled<R::kRanks>(lane % 8 + lane / 16 * 8, chunk));
                }
                // Of tokens 2t, 2t + 1 and these + 8, one in either half, the bits of column g of all tiles
                // at the tops of bytes: of tiles 0 and 2, and of 1 and 3.
                std::uint32_t tops[2][2];
                if constexpr (kMasked) {
#pragma unroll
                    for (int i = 0; i < 2; ++i) {
                        const std::uint32_t words =
                            at + R::kOfBits +
                            4 * (kAcross * (part * kStepTokens + 2 * t + 8 * i) + across);
                        const std::uint32_t nibbles =
                            __byte_perm(load_word(words), load_word(words + 4 * kAcross),
                                        g % 2 == 0 ? 0x5410 : 0x7632);
                        tops[i][0] = nibbles << (7 - g / 2);
                        tops[i][1] = nibbles << (3 - g / 2);
                    }
                }
#pragma unroll
                for (int tile = 0; tile < 4; ++tile) {
                    std::uint32_t b0 = columns[tile / 2][tile % 2 * 2];
                    std::uint32_t b1 = columns[tile / 2][tile % 2 * 2 + 1];
                    if constexpr (kMasked) {
                        const std::uint32_t of_b0 = tops[0][tile % 2];
                        const std::uint32_t of_b1 = tops[1][tile % 2];
                        b0 &= tile < 2 ? permuted<0xaa88>(of_b0) : permuted<0xbb99>(of_b0);
                        b1 &= tile < 2 ? permuted<0xaa88>(of_b1) : permuted<0xbb99>(of_b1);
                    }
#pragma unroll
                    for (int height = 0; height < kHeights; ++height) {
                        float(&sum)[4] = *reinterpret_cast<float(*)[4]>(
                            &sums[(((part * kHeights + height) * kAcross + across) * 4 + tile) *
                                  4]);
                        multiply_add(sum, a[height], b0, b1);
                    }
                }
            }
        }
    }

    copy_async_wait<0>();
    __syncthreads();  // the ring is read
    add_warps<R::kWarps, 1>(sums, reinterpret_cast<float*>(dynamic));
    if (warp > 0) return;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int tall = 0; tall < kTiles; ++tall) {  // 8 ranks
            const std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * (kParts * kRank) +
                                     part * kRank + 8 * tall + g;
#pragma unroll
            for (int i = 0; i < 4 * kAcross; ++i) {
                const std::int64_t column = first_column + 8 * i + 2 * t;
                const float* const sum =
                    &sums[((part * kHeights + tall / 2) * kAcross * 4 + i) * 4 + tall % 2 * 2];
                if (column < x.in)
                    *reinterpret_cast<float2*>(x.partial + row * x.in + column) =
                        make_float2(sum[0], sum[1]);
            }
        }
    }
}

template <int kParts, int kTiles, bool kMasked>
std::int64_t start(StreamHandle stream, const LoraArguments& x) {
    using R = Ring<kParts, kTiles>;
    constexpr std::int64_t kColumns = R::kAcross * kLoraColumns;
    const LoraCut cut = lora_down_backward_cut(x.tokens, R::kTokens, x.in, kColumns,
                                               R::kBlocks * x.multiprocessors);
    const auto kernel = down_backward_kernel<kParts, kTiles, kMasked>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, R::kBytes);
    const dim3 grid(static_cast<unsigned>((x.in + kColumns - 1) / kColumns),
                    static_cast<unsigned>(cut.count));
    launch_early(kernel, grid, dim3(R::kWarps * kWarp), R::kBytes, stream, x, cut.each);
    return cut.count;
}

// A thread four columns of a row.
__global__ void down_backward_sum_kernel(const __grid_constant__ LoraArguments x,
                                         std::int64_t pieces) {
    let_next_begin();
    wait_for_previous();
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
    std::int64_t pieces = 0;
    for_lora_shape(x.parts, x.rank, [&]<int kParts, int kTiles>(LoraShape<kParts, kTiles>) {
        pieces = x.masks.active ? start<kParts, kTiles, true>(stream, x)
                                : start<kParts, kTiles, false>(stream, x);
    });
    check_launch("lora_down_backward");
    constexpr int kThreads = 128;
    const dim3 sum_grid(static_cast<unsigned>((x.in / 4 + kThreads - 1) / kThreads),
                        static_cast<unsigned>(x.parts * x.rank));
    launch_early(down_backward_sum_kernel, sum_grid, dim3(kThreads), 0, stream, x, pieces);
    check_launch("lora_down_backward_sum");
}

}  // namespace garam::cuda
