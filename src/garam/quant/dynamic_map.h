// The dynamic 8-bit maps of Dettmers et al. (8-Bit Optimizers via Block-wise Quantization, 2022), as bitsandbytes'
// create_dynamic_map() makes them in f32: 256 ascending values in [-1, 1] or [0, 1].
//
// With exponent e = 0 … 6 a sign's values are 10^(e - 6) times the centres of 2^e equal intervals of [0.1, 1]
// (2^(e + 1) without sign); 0 and 1 are added. The signed map has +1 but no -1.
#pragma once

#include <array>
#include <cstdint>

namespace garam {

using DynamicMap = std::array<float, 256>;

const DynamicMap& signed_dynamic_map();
const DynamicMap& unsigned_dynamic_map();

// The code whose value is nearest to x, judged by the f32 midpoints of neighbours; at a midpoint the even one of
// the two codes, which is where bitsandbytes' CUDA search ends. NaN has the code 0.
std::uint8_t nearest_code(const DynamicMap& map, float x);

}  // namespace garam
