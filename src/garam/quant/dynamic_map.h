// The signed dynamic 8-bit map (core/dynamic_code.h), in which second scales are stored: 256 ascending values from
// nearly -1 to 1.
#pragma once

#include <array>
#include <cstdint>

namespace garam {

// value[code]
using DynamicMap = std::array<float, 256>;

const DynamicMap& signed_dynamic_map();

// The code whose value is nearest to x, judged by the f32 midpoints of neighbours; at a midpoint the even one of
// the two codes, which is where bitsandbytes' CUDA search ends. NaN has the code 0.
std::uint8_t nearest_code(const DynamicMap& map, float x);

}  // namespace garam
