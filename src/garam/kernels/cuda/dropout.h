// Dropout on a card (ops/dropout.h has the contract).
//
// Floor: x read and y written once (y read too when accumulating), at the bandwidth of the memory.
// The generator's integer work, some 18 operations an element, takes about as long for bf16, beside
// it.
#pragma once

#include "garam/kernels/cuda/launch.h"

namespace garam::cuda {

// Which elements are kept. With word = philox({column / 4, position, sample low 32, sample high 32
// xor step}, key)[column % 4], an element is multiplied by `factor` when word >> 8 >= threshold,
// and is 0 otherwise. Device code is in philox.cuh.
struct DropoutMask {
    std::uint64_t key = 0;                    // seed ^ (module << 32 | module)
    std::uint32_t threshold = 0;              // p * 2^24, rounded up
    float factor = 1;                         // 1 / (1 - p)
    const std::int32_t* step = nullptr;       // [1]; these three in device memory
    const std::int32_t* positions = nullptr;  // [tokens]
    const std::int64_t* samples = nullptr;    // [tokens]
};

struct DropoutKernels {
    // y may be x.
    void (*run)(StreamHandle stream, Rows x, const DropoutMask& mask, Rows y, DType dtype,
                bool accumulate, std::int64_t tokens, std::int64_t columns);
};
const DropoutKernels& dropout_kernels();

}  // namespace garam::cuda
