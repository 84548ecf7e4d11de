// dx += sum of mask_m(dh_m A_m) in one reading and writing of dx. A warp keeps its 32 columns of all A_m in
// registers and goes through a piece of the tokens, 16 a step.
#include "garam/kernels/cuda/lora_tiles.cuh"

namespace garam::cuda {
namespace {

constexpr int kWarps = 8;

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
        static_cast<std::int64_t>(blockIdx.x) * kLoraDownColumns + warp * kLoraColumns;
    if (first_column >= x.in) return;
    const std::int64_t column = first_column + 8 * t;
    const bool column_inside = column < x.in;
    const auto group = static_cast<std::uint32_t>(column / 4);

    // Ranks are summed over, hence may be renamed too: a lane has 4t … 4t + 3 of 16. (Of 8 ranks it has
    // 2t and 2t + 1, and the other half of the product is zero.)
    std::uint32_t b[kParts][kSteps][4][2];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
#pragma unroll
            for (int tile = 0; tile < 4; ++tile) {
                const std::int64_t of = first_column + 8 * (g / 2) + 2 * tile + g % 2;
                const int rank = part * kRank + 16 * step + (kTiles == 1 ? 2 : 4) * t;
                b[part][step][tile][0] = 0;
                b[part][step][tile][1] = 0;
                if (of >= x.in) continue;
                b[part][step][tile][0] =
                    pair_of_rows(bf16_row(x.A, rank) + of, bf16_row(x.A, rank + 1) + of);
                if constexpr (kTiles > 1)
                    b[part][step][tile][1] =
                        pair_of_rows(bf16_row(x.A, rank + 2) + of, bf16_row(x.A, rank + 3) + of);
            }
        }
    }

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
                    if constexpr (kTiles == 1) {
                        a[i] = *reinterpret_cast<const std::uint32_t*>(from + 2 * t);
                    } else {
                        const uint2 four = *reinterpret_cast<const uint2*>(from + 4 * t);
                        a[i] = four.x;
                        a[2 + i] = four.y;
                    }
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
            std::uint32_t* const pairs = reinterpret_cast<std::uint32_t*>(&held[i]);
#pragma unroll
            for (int pair = 0; pair < 4; ++pair) {
                const auto two = *reinterpret_cast<const __nv_bfloat162*>(&pairs[pair]);
                pairs[pair] = pack(fmaf(sums[i][2 * pair], factor, __low2float(two)),
                                   fmaf(sums[i][2 * pair + 1], factor, __high2float(two)));
            }
            *reinterpret_cast<uint4*>(row_of(token[i])) = held[i];
        }
    }
}

}  // namespace

void lora_input_backward(StreamHandle stream, const LoraArguments& x) {
    const LoraCut cut = lora_input_backward_cut(x.tokens, x.in, x.multiprocessors);
    const LoraKeys keys = lora_keys(x.masks);
    const dim3 grid(static_cast<unsigned>((x.in + kLoraDownColumns - 1) / kLoraDownColumns),
                    static_cast<unsigned>(cut.count));
    for_lora_shape(x.parts, x.rank, [&]<int kParts, int kTiles>(LoraShape<kParts, kTiles>) {
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
