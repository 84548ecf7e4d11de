// Which linears of a base are held in 4 bits, and how. The defaults are those of bitsandbytes' configuration in
// Transformers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "garam/quant/quantized_matrix.h"

namespace garam {

struct BaseQuantization {
    QuantFormat format = QuantFormat::fp4;  // nf4 or fp4
    std::int64_t block = 64;
    bool double_quantization = false;
    // Modules that stay as they are: a name ("lm_head", "model.layers.0.mlp.down_proj") or its last part.
    std::vector<std::string> skip_modules;
};

}  // namespace garam
