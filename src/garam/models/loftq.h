// LoftQ (Li et al.: "LoftQ: LoRA-fine-tuning-aware quantization for large language models", ICLR 2024) with one
// iteration, which leaves the quantised base as load_in_4bit makes it: an adapter that begins as the leading part
// of what quantising takes away,
//
//   W - Q = U S Vᵀ,  A = diag(sqrt(S_r / s)) V_rᵀ,  B = U_r diag(sqrt(S_r / s))
//
// As PEFT's loftq_init, which takes the scale s for 1 whatever lora_alpha is.
#pragma once

#include <cstdint>

#include "garam/io/stored_tensor.h"
#include "garam/models/host_products.h"
#include "garam/quant/base_quantization.h"

namespace garam {

// Rounds of subspace iteration: what quantising takes away has no leading part that would need more.
constexpr std::int64_t kLoftqRounds = 16;

// Writes A [r, in] and B [out, r], f32 in host memory, of a weight [out, in] that is not quantised yet. `scaling` is the
// s above; `seed` and `number` name the random stream of the subspace iteration. Throws Error naming tensor and element
// for a value that is not finite.
void loftq_factors(HostProducts& products, const StoredTensor& weight,
                   const BaseQuantization& quantize, double scaling, std::uint64_t seed,
                   std::uint64_t number, const Tensor& A, const Tensor& B);

}  // namespace garam
