// Makes the tables of core/dynamic_code.h, at compile time.
#pragma once

#include <bit>
#include <limits>

#include "garam/core/dynamic_code.h"

namespace garam {

// `steps` numbers from 0.1 to 1 as torch.linspace gives them: from either end, each rounded once.
constexpr float tenth_to_one(int i, int steps) {
    constexpr float kFirst = 0.1f;
    const float step = (1.0f - kFirst) / static_cast<float>(steps - 1);
    if (i < steps / 2)
        return static_cast<float>(static_cast<double>(kFirst) + static_cast<double>(step) * i);
    return static_cast<float>(1.0 - static_cast<double>(step) * (steps - 1 - i));
}

constexpr DynamicCode make_dynamic_code(bool is_signed) {
    DynamicCode code{};
    // The values: in each decade the means of neighbours of a linear grid.
    constexpr float kDecades[7] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
    const int zero = is_signed ? DynamicCode::kSignedZero : 0;
    code.value[zero] = 0;
    int distance = 1;  // from zero, in codes
    for (int decade = 0; decade < 7; ++decade) {
        const int items = 1 << (is_signed ? decade : decade + 1);
        for (int i = 0; i < items; ++i, ++distance) {
            const float mean = (tenth_to_one(i, items + 1) + tenth_to_one(i + 1, items + 1)) / 2.0f;
            code.value[zero + distance] = kDecades[decade] * mean;
            if (is_signed) code.value[zero - distance] = -(kDecades[decade] * mean);
        }
    }
    code.value[255] = 1;

    // Behind an odd code the middle itself belongs to the next one.
    for (int k = 0; k < 255; ++k) {
        const float middle = (code.value[k] + code.value[k + 1]) * 0.5f;
        const auto bits = std::bit_cast<std::uint32_t>(middle);
        code.above[k] =
            k % 2 == 0 ? middle : std::bit_cast<float>(middle > 0 ? bits - 1 : bits + 1);
    }
    code.above[255] = std::numeric_limits<float>::infinity();

    // The code of the smallest number of each cell, from cell to cell as numbers grow.
    const int shift = is_signed ? DynamicCode::kSignedShift : DynamicCode::kUnsignedShift;
    const auto base = static_cast<std::uint32_t>(is_signed ? DynamicCode::kSignedBase
                                                           : DynamicCode::kUnsignedBase);
    const int cells = is_signed ? DynamicCode::kSignedCells : DynamicCode::kUnsignedCells;
    int at = 0;
    if (is_signed) {
        for (int cell = cells - 1; cell >= 0; --cell) {
            const std::uint32_t next = (static_cast<std::uint32_t>(cell) + base + 1) << shift;
            const float smallest = cell == cells - 1 ? -1.0f : -std::bit_cast<float>(next - 1);
            while (smallest > code.above[at])
                ++at;
            code.first[cells + cell] = static_cast<std::uint8_t>(at);
        }
    }
    for (int cell = 0; cell < cells; ++cell) {
        const std::uint32_t bits = (static_cast<std::uint32_t>(cell) + base) << shift;
        const float smallest = cell == 0 ? 0.0f : std::bit_cast<float>(bits);
        while (smallest > code.above[at])
            ++at;
        code.first[cell] = static_cast<std::uint8_t>(at);
    }
    return code;
}

inline constexpr DynamicCode kSignedDynamicCode = make_dynamic_code(true);
inline constexpr DynamicCode kUnsignedDynamicCode = make_dynamic_code(false);

}  // namespace garam
