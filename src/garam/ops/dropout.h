// Dropout whose mask is a pure function of (seed, step, sample, position, module, column), never of
// the row's place in a buffer: the same sample is masked alike however the batch is cut, packed or
// recomputed.
//
//   y = x * keep / (1 - q),   keep = [ bits >= 2^16 q ]
//   words = philox<7>({column / 8, position, sample low 32, sample high 32 xor step},
//                     seed ^ (module << 32 | module))      (see core/philox.h)
//   bits = column even: the low, odd: the high half of words[column % 8 / 2]
//
// An element has 16 random bits, so q is the multiple of 2^-16 nearest to p, but for 0 < p < 1 never 0
// or 1: p = 1e-6 drops one element in 65536. The scale is that of q, so that the expectation of y is x
// for every p.
//
// x, y [tokens, columns] of one dtype, f32 or bf16; they may be the same memory.
//
// Cost: 2 flops an element, 3 when accumulating; the generator is integer work. y is read only when
// accumulating.
#pragma once

#include <cstdint>

#include "garam/runtime/stream.h"

namespace garam {

// Which mask. `positions` i32 [tokens] and `samples` i64 [tokens] (the data set's row number of
// each token's sample) are tensors of the micro-batch; `module` numbers the place in the model.
struct DropoutKey {
    std::uint64_t seed = 0;
    // i32 [1]: optimiser steps done; in device memory, so that recorded work sees it change.
    Tensor step;
    std::uint32_t module = 0;
    Tensor positions;
    Tensor samples;
};

// 2^16 q of 0 <= p < 1, the key of the generator, and 1 / (1 - q).
std::uint32_t dropout_threshold(float p);
std::uint64_t dropout_philox_key(std::uint64_t seed, std::uint32_t module);
float dropout_factor(float p);

// accumulate: y += instead of y =. Serves the backward too: dx (+)= dy * keep / (1 - q).
void dropout(Stream& stream, const Tensor& x, float p, const DropoutKey& key, const Tensor& y,
             bool accumulate);

}  // namespace garam
