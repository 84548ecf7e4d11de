// The reverse way: which published RoPE scaling made a GGUF's divisors. GGUF keeps only what the
// frequencies are divided by; a Hugging Face config names the formula and its parameters.
#pragma once

#include <optional>
#include <vector>

#include "garam/models/decoder_config.h"

namespace garam {

// `divisors` [head_dim / 2] belong to frequencies of base `theta`. Gives `standard` when all are 1,
// `linear` when all are the same, a `llama3` setting when one reproduces every divided frequency to
// fp32 rounding (its parameters are known up to a common factor of low, high and original: Llama's
// own low_freq_factor of 1 is chosen where it fits), and nothing otherwise.
std::optional<RopeConfig> recover_rope(const std::vector<double>& divisors, double theta);

}  // namespace garam
