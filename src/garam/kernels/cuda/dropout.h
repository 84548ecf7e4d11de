// Dropout on a card (ops/dropout.h has the contract).
//
// Floor: x read and y written once (y read too when accumulating), at the bandwidth of the memory.
// The generator's integer work, some 8 operations an element, is hidden behind that.
#pragma once

#include "garam/kernels/cuda/launch.h"

namespace garam::cuda {

// Which elements are kept: those whose 16 bits are at least `threshold` are multiplied by `factor`, all
// others are 0 (ops/dropout.h has the formulas). Device code is in philox.cuh.
struct DropoutMask {
    std::uint64_t key = 0;
    std::uint32_t threshold = 0;
    float factor = 1;
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
