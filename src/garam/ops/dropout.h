// Dropout whose mask is a pure function of (seed, step, sample, position, module, column), never of
// the row's place in a buffer: the same sample is masked alike however the batch is cut, packed or
// recomputed.
//
//   y = x * keep / (1 - p), keep = [ uniform01(word) >= p ]
//   word = philox({column / 4, position, sample low 32, sample high 32 xor step},
//                 seed ^ (module << 32 | module))[column % 4]   (see core/philox.h)
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

// accumulate: y += instead of y =. Serves the backward too: dx (+)= dy * keep / (1 - p).
void dropout(Stream& stream, const Tensor& x, float p, const DropoutKey& key, const Tensor& y,
             bool accumulate);

}  // namespace garam
