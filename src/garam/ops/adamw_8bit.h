// AdamW with states of 8 bits (Dettmers et al., 2022), as bitsandbytes' CUDA kernel computes it.
//
// Each tensor is cut into blocks of 256 elements, the last one shorter. A block's m and v lie as
// one code an element (core/dynamic_code.h, m signed and v not) of the value divided by the largest
// magnitude in the block, which lies beside them. In fp32, every operation rounded by itself, so
// that all devices agree to the bit:
//   m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   w += -lr sqrt(1 - b2^t) / (1 - b1^t) * (m / (sqrt(v) + sqrt(1 - b2^t) eps))
//   w *= 1 - lr * weight_decay              (behind the update; torch.optim.AdamW: before it)
// Then both are coded anew, the update having taken them as they were before. An m below zero never
// gets the code of zero but the one before it (bitsandbytes: its sign must not flip).
//
// The guard. A v below 1.6e-7 of its block's largest rounds to zero while m, its gradient being
// only the root as small, does not. When the next gradient is zero or tiny, m / (sqrt(v) + eps) is
// m / eps: weights that move by thousands of learning rates at once, and go on, since a negative m
// never gets back to zero. So here v's code is that of zero only where v is zero and m's code is,
// too; else it is at least 1, 3.25e-7 of the largest. Then what Adam promises of exact states holds
// again, up to rounding: |m| <= (1 - b1) / sqrt((1 - b2) (1 - b1^2 / b2)) sqrt(v) (Cauchy and
// Schwarz), 7.3 sqrt(v) for the usual betas. Of an element that small in its block v is then over-
// and its step underestimated, which is the harmless side. All other codes are as without the
// guard.
#pragma once

#include <cstdint>
#include <span>

#include "garam/ops/optimizer_step.h"

namespace garam {

constexpr std::int64_t kAdamW8bitBlock = 256;
constexpr std::int64_t adamw_8bit_blocks(std::int64_t elements) {
    return (elements + kAdamW8bitBlock - 1) / kAdamW8bitBlock;
}

// One of the tensors that are updated together: f32, dense, the same number of elements. Their
// blocks are counted through, in the order of the tensors.
struct AdamW8bitItem {
    Tensor weight, gradient;
    std::int64_t first_block;
};

// Of so many blocks, one behind the other: codes u8 [blocks * 256], largest magnitudes f32
// [blocks]. All bytes zero is what training begins with. Codes behind the end of a tensor mean
// nothing and stay as they are.
struct AdamW8bitStates {
    Tensor m_codes, v_codes, m_absmax, v_absmax;
};

// Updates the blocks from `first_block` on that `states` are of, in place. The gradient is
// multiplied by `gradient_scale` f32 [1] while it is read; where that is NaN, nothing is changed.
// Cost an element: 20 flops; read 10 bytes, written 6; 8 of either a block.
void adamw_8bit_step(Stream& stream, const AdamWOptions& options,
                     std::span<const AdamW8bitItem> items, const AdamW8bitStates& states,
                     std::int64_t first_block, const Tensor& gradient_scale);

}  // namespace garam
