// Which linears of a base are held in 4 bits, and how. The defaults are those of bitsandbytes' configuration in
// Transformers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "garam/quant/quantized_matrix.h"

namespace garam {

struct BaseQuantization {
    QuantFormat format = QuantFormat::fp4;  // nf4 or fp4
    std::int64_t block = 64;  // elements that share an absmax: a power of two, 32 to 4096
    bool double_quantization = false;
    // Modules that stay as they are, in Transformers' way: a name or its beginning up to a dot
    // ("model.layers.0"), or its end ("down_proj").
    std::vector<std::string> skip_modules;
};

// Whether `module`, such as "model.layers.0.mlp.down_proj", stays as it is.
bool is_skipped(const BaseQuantization& options, std::string_view module);

// "nf4, blocks of 64, scales in 8 bits"
std::string in_words(const BaseQuantization& options);

}  // namespace garam
