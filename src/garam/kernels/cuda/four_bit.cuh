// Reading 4-bit codes on the device: their tables in shared memory, and absmax by its two kinds.
#pragma once

#include <algorithm>

#include "garam/kernels/cuda/dequantize.h"
#include "garam/kernels/cuda/device_code.cuh"

namespace garam::cuda {

constexpr int kCodes = 16;
constexpr int kMapCodes = 256;

// A weight as a kernel takes it: by value, tables included.
struct FourBitWork {
    const std::uint8_t* codes = nullptr;
    const void* absmax = nullptr;
    const float* nested_absmax = nullptr;
    const float* offset = nullptr;
    int block_shift = 0;
    int nested_shift = 0;
    float table[kCodes] = {};
    float map[kMapCodes] = {};  // of double quantisation
};

inline FourBitWork four_bit_work(const QuantizedWeight& weight) {
    FourBitWork work;
    work.codes = static_cast<const std::uint8_t*>(weight.codes);
    work.absmax = weight.absmax;
    work.nested_absmax = weight.nested_absmax;
    work.offset = weight.offset;
    work.block_shift = weight.block_shift;
    work.nested_shift = weight.nested_shift;
    std::copy_n(weight.table, kCodes, work.table);
    if (weight.nested_absmax != nullptr) std::copy_n(weight.map, kMapCodes, work.map);
    return work;
}

// A block's absmax on its way: what is read of it, and what that stands for. Each step rounds to f32.
template <bool kDouble>
struct ReadAbsmax {
    float value;

    __device__ __forceinline__ static ReadAbsmax of(const FourBitWork& work, std::int64_t block) {
        return {static_cast<const float*>(work.absmax)[block]};
    }
    __device__ __forceinline__ float decode(const float* /*map*/, float /*offset*/) const {
        return value;
    }
};
template <>
struct ReadAbsmax<true> {
    std::uint32_t code;
    float nested;

    __device__ __forceinline__ static ReadAbsmax of(const FourBitWork& work, std::int64_t block) {
        return {static_cast<const std::uint8_t*>(work.absmax)[block],
                work.nested_absmax[block >> work.nested_shift]};
    }
    __device__ __forceinline__ float decode(const float* map, float offset) const {
        return __fadd_rn(__fmul_rn(map[code], nested), offset);
    }
};

// The code of element i of those in `codes`, times 4, as an offset into a table of floats: the first of a byte
// is in its high nibble.
__device__ __forceinline__ std::uint32_t code_offset(std::uint32_t codes, int i) {
    const int bit = 4 * (i ^ 1);
    return (bit >= 2 ? codes >> (bit - 2) : codes << 2) & 0x3cu;
}
__device__ __forceinline__ float value_at(const float* table, std::uint32_t offset) {
    return *reinterpret_cast<const float*>(reinterpret_cast<const char*>(table) + offset);
}

}  // namespace garam::cuda
