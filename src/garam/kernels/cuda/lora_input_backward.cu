// dx += sum of mask_m(dh_m A_m) in one reading and writing of dx. A warp keeps its 32 columns of all A_m in
// registers and goes through a piece of the tokens, 16 a step.
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

template <int kParts, int kTiles, Masking kMasking>
__global__ void __launch_bounds__(kWarps* kWarp, 2)
    input_backward_kernel(const __grid_constant__ LoraArguments x,
                          const __grid_constant__ LoraKeys keys, std::int64_t units) {
    constexpr int kRank = 8 * kTiles;
    constexpr int kSteps = (kTiles + 1) / 2;  // of 16 ranks
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int g = lane / 4;
    const int t = lane % 4;
    const std::int64_t first_column =
        static_cast<std::int64_t>(blockIdx.x) * kLoraInputColumns + warp * kLoraColumns;
    if (first_column >= x.in) return;
    const std::int64_t column = first_column + 8 * t;
    const bool column_inside = column < x.in;
    const auto group = static_cast<std::uint32_t>(column / 4);

    std::uint32_t b[kParts][kSteps][4][2];
    columns_of_A<kParts, kTiles>(x, first_column, g, t, b);

    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * units * 16;
    const std::int64_t end = min(begin + units * 16, x.tokens);
    // What a step reads of dx and of kept masks. These are read a step ahead; where masks are made, there
    // is enough to do meanwhile.
    constexpr bool kAhead = kMasking == Masking::read;
    struct Step {
        uint4 held[2];
        std::uint32_t bits[kParts][2];
    };
    const auto row_of = [&](std::int64_t token) {
        return static_cast<Bf16*>(x.x.data) + token * x.x.pitch + column;
    };
    const auto load = [&](std::int64_t first) {
        Step step{};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const std::int64_t token = first + g + 8 * i;
            const bool inside = token < end && column_inside;
            step.held[i] = load_or_zero(row_of(token), inside);
            if constexpr (kAhead) {
#pragma unroll
                for (int part = 0; part < kParts; ++part)
                    step.bits[part][i] = kept_bits_of(x, token, part, column, inside);
            }
        }
        return step;
    };
    Step next{};
    if constexpr (kAhead) next = load(begin);
    for (std::int64_t first = begin; first < end; first += 16) {
        Step now;
        if constexpr (kAhead) {
            now = next;
            next = load(first + 16);
        } else {
            now = load(first);
        }
        uint4(&held)[2] = now.held;
        std::uint32_t(&bits)[kParts][2] = now.bits;
        const std::int64_t token[2] = {first + g, first + g + 8};
        bool inside[2];
        TokenMask tokens[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            inside[i] = token[i] < end && column_inside;
            if constexpr (kMasking == Masking::make) tokens[i] = lora_token(x, token[i]);
        }
        float sums[2][8] = {};
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
            float product[4][4] = {};
#pragma unroll
            for (int step = 0; step < kSteps; ++step) {
                std::uint32_t a[4] = {};
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    if (token[i] >= end) continue;
                    const Bf16* const from = bf16_row(x.h, token[i]) + part * kRank + 16 * step;
                    a[i] = *reinterpret_cast<const std::uint32_t*>(from + 2 * t);
                    if constexpr (kTiles > 1)
                        a[2 + i] = *reinterpret_cast<const std::uint32_t*>(from + 8 + 2 * t);
                }
#pragma unroll
                for (int tile = 0; tile < 4; ++tile)
                    multiply_add(product[tile], a, b[part][step][tile][0], b[part][step][tile][1]);
            }
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                if constexpr (kMasking == Masking::make) {
                    const uint4 row = lora_mask_row(keys.of[part], tokens[i]);
#pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        const uint4 words = lora_words(keys.of[part], row, group + half);
                        const std::uint32_t four = (words.x >= keys.threshold ? 1u : 0u) |
                                                   (words.y >= keys.threshold ? 2u : 0u) |
                                                   (words.z >= keys.threshold ? 4u : 0u) |
                                                   (words.w >= keys.threshold ? 8u : 0u);
                        bits[part][i] |= four << 4 * half;
                    }
                    if (x.kept != nullptr && inside[i])
                        *kept_byte(x, token[i], part, column) =
                            static_cast<std::uint8_t>(bits[part][i]);
                }
#pragma unroll
                for (int of = 0; of < 8; ++of)
                    if (bits[part][i] & 1u << of) sums[i][of] += product[of / 2][2 * i + of % 2];
            }
        }
        const float factor = x.masks.common.factor;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (!inside[i]) continue;
            *reinterpret_cast<uint4*>(row_of(token[i])) = with_sums(held[i], sums[i], factor);
        }
    }
}

// The same where masks are read: dx, dh and bits come through the warp's ring.
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
    input_backward_ring_kernel(const __grid_constant__ LoraArguments x, std::int64_t units) {
    using R = Ring<kParts, kTiles>;
    constexpr int kSteps = (kTiles + 1) / 2;  // of 16 ranks
    extern __shared__ uint4 dynamic[];
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int g = lane / 4;
    const int t = lane % 4;
    const std::uint32_t ring = shared_address(dynamic) + warp * (kRingStages * R::kStage);
    const std::int64_t first_column =
        static_cast<std::int64_t>(blockIdx.x) * kLoraInputColumns + warp * kLoraColumns;
    if (first_column >= x.in) return;
    const std::int64_t column = first_column + 8 * t;
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * units * kStepTokens;
    const std::int64_t end = min(begin + units * kStepTokens, x.tokens);

    Bf16* rows = static_cast<Bf16*>(x.x.data) + (begin + g) * x.x.pitch + column;  // of this step
    const Bf16* from_x = rows;  // of the next copy
    const Bf16* from_h = bf16_row(x.h, begin);
    const std::uint8_t* from_bits = kept_byte(x, begin + lane / 2, 0, first_column);
    int to_copy = static_cast<int>(end - begin);
    const auto copy = [&](std::uint32_t to) {
        if (to_copy > 0) {
#pragma unroll
            for (int i = 0; i < 2; ++i)
                copy_async_16(to + 16 * (i * kWarp + lane), from_x + 8 * i * x.x.pitch,
                              g + 8 * i < to_copy);
            copy_h<R::kRanks>(to + R::kOfH, from_h, x.h.pitch, to_copy, lane);
#pragma unroll
            for (int i = 0; i < (kParts + 1) / 2; ++i) {
                const int part = 2 * i + lane % 2;
                if (part < kParts)
                    copy_async_4(to + R::kOfBits + 4 * (part * kStepTokens + lane / 2),
                                 from_bits + part * (x.in / 8), lane / 2 < to_copy);
            }
        }
        copy_async_commit();
        from_x += kStepTokens * x.x.pitch;
        from_h += kStepTokens * x.h.pitch;
        from_bits += kStepTokens * kParts * (x.in / 8);
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
                    load_shared_4(at + R::kOfBits + 4 * (part * kStepTokens + g + 8 * i)) >> 8 * t;
#pragma unroll
                for (int of = 0; of < 8; ++of)
                    if (bits & 1u << of) sums[i][of] += product[of / 2][2 * i + of % 2];
            }
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint4 held = load_shared_16(at + 16 * (i * kWarp + lane));
            if (g + 8 * i < left)
                *reinterpret_cast<uint4*>(rows + 8 * i * x.x.pitch) =
                    with_sums(held, sums[i], factor);
        }
        rows += kStepTokens * x.x.pitch;
    }
}

template <int kParts, int kTiles>
void start_ring(StreamHandle stream, const LoraArguments& x, dim3 grid, std::int64_t units) {
    constexpr int kBytes = Ring<kParts, kTiles>::kBytes;
    const auto kernel = input_backward_ring_kernel<kParts, kTiles>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    kernel<<<grid, kWarps * kWarp, kBytes, stream>>>(x, units);
}

}  // namespace

void lora_input_backward(StreamHandle stream, const LoraArguments& x) {
    const LoraCut cut = lora_input_backward_cut(x.tokens, x.in, x.multiprocessors);
    const dim3 grid(static_cast<unsigned>((x.in + kLoraInputColumns - 1) / kLoraInputColumns),
                    static_cast<unsigned>(cut.count));
    for_lora_shape(x.parts, x.rank, [&]<int kParts, int kTiles>(LoraShape<kParts, kTiles>) {
        if (kept_in_words(x)) return start_ring<kParts, kTiles>(stream, x, grid, cut.each);
        const LoraKeys keys = lora_keys(x.masks);
        for_masking(x, [&]<Masking kMasking>(LoraMasking<kMasking>) {
            input_backward_kernel<kParts, kTiles, kMasking>
                <<<grid, kWarps * kWarp, 0, stream>>>(x, keys, cut.each);
        });
    });
    check_launch("lora_input_backward");
}

const LoraKernels& lora_kernels() {
    static constexpr LoraKernels kTable{lora_down, lora_down_backward, lora_input_backward,
                                        lora_up_backward};
    return kTable;
}

}  // namespace garam::cuda
