// dx += sum of mask_m(dh_m A_m) in one reading and writing of dx. A warp keeps its 32 columns of all A_m in
// registers and goes through a piece of the tokens, 16 a step.
#include "garam/kernels/cuda/early_launch.cuh"
#include "garam/kernels/cuda/lora_tiles.cuh"

namespace garam::cuda {
namespace {

constexpr int kWarps = 8;

// A warp's 32 columns of all A_m, as a product's second operand: of ranks 2t, 2t + 1 and these + 8, and of
// column 8 (g / 2) + 2 tile + g % 2. (Of 8 ranks the other half is zero.)
template <int kParts, int kTiles, int kSteps>
__device__ __forceinline__ void columns_of_A(const LoraArguments& x, std::int64_t first_column,
                                             int g, int t,
                                             std::uint32_t (&b)[kParts][kSteps][4][2]) {
    const std::int64_t of = first_column + g / 2 * 8;
    const std::uint32_t parity = g % 2 == 0 ? 0x5410u : 0x7632u;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int i = 0; i < kSteps * 2; ++i) {
            const int rank = part * 8 * kTiles + 8 * i + 2 * t;
            const bool inside = i < kTiles && of < x.in;
            const uint4 even = load_or_zero(bf16_row(x.A, rank) + of, inside);
            const uint4 odd = load_or_zero(bf16_row(x.A, rank + 1) + of, inside);
            b[part][i / 2][0][i % 2] = __byte_perm(even.x, odd.x, parity);
            b[part][i / 2][1][i % 2] = __byte_perm(even.y, odd.y, parity);
            b[part][i / 2][2][i % 2] = __byte_perm(even.z, odd.z, parity);
            b[part][i / 2][3][i % 2] = __byte_perm(even.w, odd.w, parity);
        }
    }
}

// The lane's 8 elements of dx with their sums.
__device__ __forceinline__ uint4 with_sums(uint4 held, const float (&sums)[8], float factor) {
    std::uint32_t pairs[4] = {held.x, held.y, held.z, held.w};
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
        const auto two = *reinterpret_cast<const __nv_bfloat162*>(&pairs[pair]);
        pairs[pair] = pack(fmaf(sums[2 * pair], factor, __low2float(two)),
                           fmaf(sums[2 * pair + 1], factor, __high2float(two)));
    }
    return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

// dx, dh and bits come through the warp's ring.
template <int kParts, int kTiles>
struct Ring {
    static constexpr int kRanks = kParts * kTiles;  // chunks of 16 bytes of dh
    static constexpr int kOfH = 2 * kWarp * 16;     // where in a stage
    static constexpr int kOfBits = kOfH + kStepTokens * kRanks * 16;
    static constexpr int kStage = kOfBits + kParts * kStepTokens * 4;
    static constexpr int kBytes = kWarps * kRingStages * kStage;
};

template <int kParts, int kTiles>
__global__ void __launch_bounds__(kWarps* kWarp, 2)
    input_backward_kernel(const __grid_constant__ LoraArguments x, std::int64_t units) {
    using R = Ring<kParts, kTiles>;
    constexpr int kSteps = (kTiles + 1) / 2;  // of 16 ranks
    extern __shared__ uint4 dynamic[];
    let_next_begin();
    wait_for_previous();
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int g = lane / 4;
    const int t = lane % 4;
    const std::uint32_t ring = shared_address(dynamic) + warp * (kRingStages * R::kStage);
    const std::int64_t first_column =
        static_cast<std::int64_t>(blockIdx.x) * kLoraInputColumns + warp * kLoraColumns;
    if (first_column >= x.in) return;
    const std::int64_t column = first_column + 8 * t;
    const bool column_inside = column < x.in;
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * units * kStepTokens;
    const std::int64_t end = min(begin + units * kStepTokens, x.tokens);

    Bf16* rows = static_cast<Bf16*>(x.x.data) + (begin + g) * x.x.pitch + column;  // of this step
    const Bf16* from_x = rows;  // of the next copy
    const Bf16* from_h = bf16_row(x.h, begin);
    const std::uint32_t* from_bits = kept_word(x, begin + lane / 2, 0, first_column);
    int to_copy = static_cast<int>(end - begin);
    const auto copy = [&](std::uint32_t to) {
        if (to_copy > 0) {
#pragma unroll
            for (int i = 0; i < 2; ++i)
                copy_async_16(to + 16 * (i * kWarp + lane), from_x + 8 * i * x.x.pitch,
                              column_inside && g + 8 * i < to_copy);
            copy_h<R::kRanks>(to + R::kOfH, from_h, x.h.pitch, to_copy, lane);
#pragma unroll
            for (int i = 0; i < (kParts + 1) / 2; ++i) {
                const int part = 2 * i + lane % 2;
                if (part < kParts)
                    copy_async_4(to + R::kOfBits + 4 * (part * kStepTokens + lane / 2),
                                 from_bits + part * lora_kept_words(x.in), lane / 2 < to_copy);
            }
        }
        copy_async_commit();
        from_x += kStepTokens * x.x.pitch;
        from_h += kStepTokens * x.h.pitch;
        from_bits += kStepTokens * kParts * lora_kept_words(x.in);
        to_copy -= kStepTokens;
    };
    copy(ring);
    copy(ring + R::kStage);

    std::uint32_t b[kParts][kSteps][4][2];
    columns_of_A<kParts, kTiles>(x, first_column, g, t, b);
    const float factor = x.masks.common.factor;
    int stage = 0;
    for (int left = static_cast<int>(end - begin); left > 0; left -= kStepTokens) {
        copy_async_wait<kRingStages - 2>();
        __syncwarp();  // all lanes' copies are here, and the stage before is read
        copy(ring + (stage == 0 ? kRingStages - 1 : stage - 1) * R::kStage);
        const std::uint32_t at = ring + stage * R::kStage;
        stage = stage + 1 == kRingStages ? 0 : stage + 1;
        float sums[2][8] = {};
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
            float product[4][4] = {};
#pragma unroll
            for (int step = 0; step < kSteps; ++step) {
                std::uint32_t a[4];
                const int chunk = part * kTiles + (kTiles == 1 ? 0 : 2 * step + lane / 16);
                load_matrices(a, at + R::kOfH + 16 * swizzled<R::kRanks>(lane % 16, chunk));
#pragma unroll
                for (int tile = 0; tile < 4; ++tile)
                    multiply_add(product[tile], a, b[part][step][tile][0], b[part][step][tile][1]);
            }
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const std::uint32_t bits =
                    load_shared_4(at + R::kOfBits + 4 * (part * kStepTokens + g + 8 * i)) >> 4 * t;
#pragma unroll
                for (int of = 0; of < 8; ++of)
                    if (bits & 1u << (of / 2 + of % 2 * 16))
                        sums[i][of] += product[of / 2][2 * i + of % 2];
            }
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint4 held = load_shared_16(at + 16 * (i * kWarp + lane));
            if (column_inside && g + 8 * i < left)
                *reinterpret_cast<uint4*>(rows + 8 * i * x.x.pitch) =
                    with_sums(held, sums[i], factor);
        }
        rows += kStepTokens * x.x.pitch;
    }
}

template <int kParts, int kTiles>
void start(StreamHandle stream, const LoraArguments& x, dim3 grid, std::int64_t units) {
    constexpr int kBytes = Ring<kParts, kTiles>::kBytes;
    const auto kernel = input_backward_kernel<kParts, kTiles>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    launch_early(kernel, grid, dim3(kWarps * kWarp), kBytes, stream, x, units);
}

}  // namespace

void lora_input_backward(StreamHandle stream, const LoraArguments& x) {
    const LoraCut cut = lora_input_backward_cut(x.tokens, x.in, x.multiprocessors);
    const dim3 grid(static_cast<unsigned>((x.in + kLoraInputColumns - 1) / kLoraInputColumns),
                    static_cast<unsigned>(cut.count));
    for_lora_shape(x.parts, x.rank, [&]<int kParts, int kTiles>(LoraShape<kParts, kTiles>) {
        start<kParts, kTiles>(stream, x, grid, cut.each);
    });
    check_launch("lora_input_backward");
}

const LoraKernels& lora_kernels() {
    static constexpr LoraKernels kTable{lora_down, lora_down_backward, lora_input_backward,
                                        lora_up_backward};
    return kTable;
}

}  // namespace garam::cuda
