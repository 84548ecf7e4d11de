// The 8-bit dynamic code (Dettmers, 2016, as bitsandbytes' create_dynamic_map has it): 256
// ascending values in [-1, 1], or [0, 1], each decade below 1 with half as many as the one above. A
// number x is coded as the value nearest to it; of two as near, the one of the even code, as in
// bitsandbytes' CUDA kernels.
//
// Finding that code takes two look-ups. Numbers are cut into cells by their leading bits (sign,
// exponent and 6 bits of the mantissa; without the sign 7), of which none holds more than two
// codes' numbers: `first` is the smaller code of a cell, and x has the next one where it lies above
// above[first].
//
// Plain tables, since kernels read them; code outside kernels makes them: dynamic_code_tables.h.
#pragma once

#include <cstdint>

namespace garam {

struct DynamicCode {
    // Cells go from 2^-23, where there is nothing left but 0, to 1, which is a cell of its own.
    // Smaller numbers are in the first cell. Those of negative numbers follow those of positive
    // ones.
    static constexpr int kSmallestExponent = 127 - 23;
    static constexpr int kSignedShift = 17;    // of a float's bits, for its cell
    static constexpr int kUnsignedShift = 16;  // …
    static constexpr std::int32_t kSignedBase = kSmallestExponent << (23 - kSignedShift);
    static constexpr std::int32_t kUnsignedBase = kSmallestExponent << (23 - kUnsignedShift);
    static constexpr std::int32_t kSignedCells = (23 << (23 - kSignedShift)) + 1;  // of each sign
    static constexpr std::int32_t kUnsignedCells = (23 << (23 - kUnsignedShift)) + 1;

    static constexpr std::uint8_t kSignedZero = 127;  // the code of 0 among signed ones

    alignas(16) float value[256];
    float above[256];  // the last is infinite
    std::uint8_t first[2960];
};
static_assert(2 * DynamicCode::kSignedCells <= 2960 && DynamicCode::kUnsignedCells <= 2960);

}  // namespace garam
