// The generator of dropout's masks on a card, word for word philox<7> of core/philox.h (ops/dropout.h).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "garam/kernels/cuda/dropout.h"

namespace garam::cuda {

constexpr int kMaskRounds = 7;

__device__ __forceinline__ uint4 philox(uint4 counter, uint2 key) {
#pragma unroll
    for (int round = 0; round < kMaskRounds; ++round) {
        const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * counter.x;
        const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * counter.z;
        counter = make_uint4(static_cast<std::uint32_t>(product1 >> 32) ^ counter.y ^ key.x,
                             static_cast<std::uint32_t>(product1),
                             static_cast<std::uint32_t>(product0 >> 32) ^ counter.w ^ key.y,
                             static_cast<std::uint32_t>(product0));
        key.x += 0x9E3779B9u;
        key.y += 0xBB67AE85u;
    }
    return counter;
}

// The mask of one token: all words of the counter but the first.
struct TokenMask {
    std::uint32_t position, sample_low, sample_high_xor_step;
};
__device__ __forceinline__ TokenMask token_mask(const DropoutMask& mask, std::int64_t token) {
    const auto sample = static_cast<std::uint64_t>(mask.samples[token]);
    return {static_cast<std::uint32_t>(mask.positions[token]), static_cast<std::uint32_t>(sample),
            static_cast<std::uint32_t>(sample >> 32) ^ static_cast<std::uint32_t>(*mask.step)};
}

// The words of columns [8 * group, 8 * group + 8), two columns a word, the first in the low half.
__device__ __forceinline__ uint4 mask_words(const DropoutMask& mask, const TokenMask& token,
                                            std::uint32_t group) {
    return philox(make_uint4(group, token.position, token.sample_low, token.sample_high_xor_step),
                  make_uint2(static_cast<std::uint32_t>(mask.key),
                             static_cast<std::uint32_t>(mask.key >> 32)));
}

// Whether an element is multiplied by mask.factor, by the half of its word; otherwise it is 0, also
// where the element is infinite.
__device__ __forceinline__ bool keeps(const DropoutMask& mask, std::uint32_t word, int half) {
    return (half == 0 ? word & 0xffffu : word >> 16) >= mask.threshold;
}

}  // namespace garam::cuda
