// Frequencies and tables of rotary position embedding.
#pragma once

#include <vector>

#include "garam/models/rope_config.h"
#include "garam/runtime/device.h"

namespace garam {

// inv_freq [rotary_dim / 2] = theta^(-2 i / rotary_dim), scaled as the config says:
// linear divides by the factor (Chen et al., 2023); llama3 divides frequencies of long wavelength,
// keeps short ones and blends between (as published with Llama 3.1's weights). Rounded to fp32 where the
// reference rounds.
std::vector<float> rope_inverse_frequencies(const RopeConfig& rope, std::int64_t rotary_dim);

// cos and sin of position * inv_freq, f32 [positions, rotary_dim / 2] each: `cos` and `sin` are filled.
// The angle is rounded to fp32 as in the reference.
void fill_rope_tables(const std::vector<float>& inverse_frequencies, const Tensor& cos,
                      const Tensor& sin);

}  // namespace garam
