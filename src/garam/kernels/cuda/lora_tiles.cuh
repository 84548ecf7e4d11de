// What the LoRA kernels share: how a warp's step of 32 columns lies in its registers, and its masks.
//
// A lane with g = lane / 4 and t = lane % 4 holds columns 8t … 8t + 7 of row g: 16 bytes of memory, and one
// call of the generator. Tensor cores want other columns there; where these are summed over, or are columns
// of the result, they may be renamed: register j of the four holds columns 2t and 2t + 1 of tile j, which
// stand for 8t + 2j and 8t + 2j + 1, like the halves of the generator's word j.
#pragma once

#include "garam/kernels/cuda/device_code.cuh"
#include "garam/kernels/cuda/lora.h"
#include "garam/kernels/cuda/philox.cuh"
#include "garam/kernels/cuda/tensor_core.cuh"

namespace garam::cuda {

constexpr std::uint32_t kPhilox0 = 0xD2511F53u;  // the multipliers of core/philox.h
constexpr std::uint32_t kPhilox1 = 0xCD9E8D57u;

// What of the masks a launch can know beforehand: the generator's keys of every round, and the threshold in
// parts (kept_halves).
struct LoraKeys {
    std::uint32_t of[kLoraMostParts][kMaskRounds][2];
    std::uint32_t addend, below_half;
};
inline LoraKeys lora_keys(const LoraMasks& masks) {
    LoraKeys keys{};
    const std::uint32_t threshold = masks.common.threshold;
    keys.addend = (0x8000u - (threshold & 0x7fffu)) * 0x00010001u;
    keys.below_half = threshold < 0x8000u ? ~0u : 0u;
    for (int part = 0; part < kLoraMostParts; ++part) {
        auto low = static_cast<std::uint32_t>(masks.keys[part]);
        auto high = static_cast<std::uint32_t>(masks.keys[part] >> 32);
        for (auto& round : keys.of[part]) {
            round[0] = low;
            round[1] = high;
            low += 0x9E3779B9u;
            high += 0xBB67AE85u;
        }
    }
    return keys;
}

// The generator's first two rounds as far as they depend on the token only. Of the counter
// {group, position, sample low, sample high xor step} the last three words are the token's.
__device__ __forceinline__ uint4 lora_mask_row(const std::uint32_t (&keys)[kMaskRounds][2],
                                               const TokenMask& token) {
    const std::uint64_t first = std::uint64_t{kPhilox1} * token.sample_low;
    const std::uint64_t second =
        std::uint64_t{kPhilox0} *
        (static_cast<std::uint32_t>(first >> 32) ^ token.position ^ keys[0][0]);
    return make_uint4(
        token.sample_high_xor_step ^ keys[0][1], static_cast<std::uint32_t>(first) ^ keys[1][0],
        static_cast<std::uint32_t>(second >> 32) ^ keys[1][1], static_cast<std::uint32_t>(second));
}

// mask_words() of philox.cuh: what is left of them for a group of 8 columns, with keys from the launch's
// constants. The product with the group serves all rows and parts.
__device__ __forceinline__ uint4 lora_words(const std::uint32_t (&keys)[kMaskRounds][2],
                                            const uint4& row, std::uint32_t group) {
    const std::uint64_t of_group = std::uint64_t{kPhilox0} * group;
    const std::uint64_t mixed =
        std::uint64_t{kPhilox1} * (static_cast<std::uint32_t>(of_group >> 32) ^ row.x);
    uint4 counter = make_uint4(static_cast<std::uint32_t>(mixed >> 32) ^ row.y,
                               static_cast<std::uint32_t>(mixed),
                               row.z ^ static_cast<std::uint32_t>(of_group), row.w);
#pragma unroll
    for (int round = 2; round < kMaskRounds; ++round) {
        const std::uint64_t product0 = std::uint64_t{kPhilox0} * counter.x;
        const std::uint64_t product1 = std::uint64_t{kPhilox1} * counter.z;
        counter =
            make_uint4(static_cast<std::uint32_t>(product1 >> 32) ^ counter.y ^ keys[round][0],
                       static_cast<std::uint32_t>(product1),
                       static_cast<std::uint32_t>(product0 >> 32) ^ counter.w ^ keys[round][1],
                       static_cast<std::uint32_t>(product0));
    }
    return counter;
}

// Bytes of x, or with 8 added to a selector that byte's top bit eight times (which __byte_perm, unlike the
// instruction, leaves out).
template <std::uint32_t kSelector>
__device__ __forceinline__ std::uint32_t permuted(std::uint32_t x) {
    std::uint32_t y;
    asm("prmt.b32 %0, %1, 0, %2;\n" : "=r"(y) : "r"(x), "n"(kSelector));
    return y;
}

// Ones in the halves of the word that are at least the threshold. The sum's top bits say so of the lower 15
// bits (it carries nothing from half to half); where the threshold's own top bit is 0 the half's is enough,
// else both are needed: the majority of the three.
__device__ __forceinline__ std::uint32_t kept_halves(std::uint32_t word, const LoraKeys& keys) {
    const std::uint32_t sum = (word & 0x7fff7fffu) + keys.addend;
    return permuted<0xbb99>((word & sum) | (keys.below_half & (word | sum)));
}

// Of one of the parts and one row: the word of a multiple of 32 columns.
__device__ __forceinline__ std::uint32_t* kept_word(const LoraArguments& x, std::int64_t token,
                                                    int part, std::int64_t column) {
    return x.kept + (token * x.parts + part) * lora_kept_words(x.in) + column / kLoraColumns;
}

// The token's words; of the last one for tokens beyond the end, whose elements nobody uses.
__device__ __forceinline__ TokenMask lora_token(const LoraArguments& x, std::int64_t token) {
    return token_mask(x.masks.common, token < x.tokens ? token : x.tokens - 1);
}

__device__ __forceinline__ const Bf16* bf16_row(const Rows& rows, std::int64_t row) {
    return static_cast<const Bf16*>(rows.data) + row * rows.pitch;
}
__device__ __forceinline__ uint4 load_or_zero(const Bf16* pointer, bool inside) {
    return inside ? *reinterpret_cast<const uint4*>(pointer) : make_uint4(0, 0, 0, 0);
}

// Of an 8 x 8 matrix whose lane holds columns 2t, 2t + 1 of row g: rows 2t, 2t + 1 of column g.
__device__ __forceinline__ std::uint32_t transposed(std::uint32_t x) {
    std::uint32_t y;
    // volatile: of no branch, since all lanes must come.
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(y) : "r"(x));
    return y;
}

// Where chunk `c` of 16 bytes of row `r` lies in a tile in shared memory of kChunks a row: 8 rows of one chunk
// are read without conflicts.
template <int kChunks>
__device__ __forceinline__ int swizzled(int r, int c) {
    if constexpr (kChunks % 8 == 0) return r * kChunks + (c ^ (r & 7));
    if constexpr (kChunks % 4 == 0) return r * kChunks + (c ^ (r >> 1 & 3));
    if constexpr (kChunks % 2 == 0) return r * kChunks + (c ^ (r >> 2 & 1));
    return r * kChunks + c;
}

// A warp's steps lie in a ring in shared memory, which copies fill two steps ahead: what is under way does
// not cost registers. Only the warp itself reads its ring, so that it waits for its own lanes only.
constexpr int kRingStages = 3;
constexpr int kStepTokens = 16;

// Of 16 rows of h (dh or u) from column 0 to the end of kChunks chunks; zeros from row `left`.
template <int kChunks>
__device__ __forceinline__ void copy_h(std::uint32_t to, const Bf16* h, std::int64_t pitch,
                                       std::int64_t left, int lane) {
    const int row = lane / 2;
    const bool inside = row < left;
    const Bf16* const from = h + row * pitch;
#pragma unroll
    for (int i = 0; i < (kChunks + 1) / 2; ++i) {
        const int chunk = 2 * i + lane % 2;
        if (chunk < kChunks)
            copy_async_16_cached(to + 16 * swizzled<kChunks>(row, chunk), from + 8 * chunk, inside);
    }
}

// Adds the sums of a block's warps into those of the first `kGroup`: warp w gets w + kGroup * i for all i,
// by halves, so that few lie in shared memory. `shared` holds kWarps / 2 * kCount * 32 floats.
template <int kWarps, int kGroup, int kCount>
__device__ __forceinline__ void add_warps(float (&sums)[kCount], float* shared) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int half = kWarps / 2; half >= kGroup; half /= 2) {
        if (warp >= half && warp < 2 * half) {
#pragma unroll
            for (int i = 0; i < kCount; ++i)
                shared[((warp - half) * kCount + i) * kWarp + lane] = sums[i];
        }
        __syncthreads();
        if (warp < half) {
#pragma unroll
            for (int i = 0; i < kCount; ++i)
                sums[i] += shared[(warp * kCount + i) * kWarp + lane];
        }
        __syncthreads();
    }
}

// Calls body(parts, tiles) with the two as constants.
template <int kParts, int kTiles>
struct LoraShape {};
template <typename Body>
void for_lora_shape(int parts, int rank, const Body& body) {
    const auto of_parts = [&]<int kParts>() {
        if (rank == 8) return body(LoraShape<kParts, 1>{});
        if (rank == 16) return body(LoraShape<kParts, 2>{});
        if constexpr (kParts <= 2)
            if (rank == 32) return body(LoraShape<kParts, 4>{});
        if constexpr (kParts == 1)
            if (rank == 64) return body(LoraShape<kParts, 8>{});
    };
    if (parts == 1) of_parts.template operator()<1>();
    if (parts == 2) of_parts.template operator()<2>();
    if (parts == 3) of_parts.template operator()<3>();
}

void lora_down(StreamHandle stream, const LoraArguments& arguments);
void lora_down_backward(StreamHandle stream, const LoraArguments& arguments);
void lora_input_backward(StreamHandle stream, const LoraArguments& arguments);
void lora_up_backward(StreamHandle stream, const LoraUpArguments& arguments);

}  // namespace garam::cuda
