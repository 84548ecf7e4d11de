// Where a new adapter's A and B begin. Each of these leaves the model as it is: B A is zero.
#pragma once

#include <cstdint>
#include <string>

#include "garam/core/tensor.h"

namespace garam {

// PEFT's init_lora_weights:
//   kaiming     (true) A uniform within 1 / sqrt(in), which is kaiming_uniform(a = sqrt 5); B zero
//   gaussian    A normal with deviation 1 / r; B zero
//   orthogonal  rows of an orthogonal [r, r] shared out: A = (X Q_even)ᵀ / 10, B = Y Q_odd / 10 with X and Y
//               normal, so that the rows that A and B are made of meet none of each other's
enum class LoraInit : std::uint8_t { kaiming, gaussian, orthogonal };

LoraInit lora_init_from_name(const std::string& name);

// A [r, in] and B [out, r], f32 in host memory; B comes cleared. `seed` and `number` name the random
// stream. Throws Error when orthogonal meets an odd rank.
void initialise_lora(LoraInit init, std::uint64_t seed, std::uint64_t number, const Tensor& A,
                     const Tensor& B);

}  // namespace garam
