// Formats of quantised weights, for kernels as for those who call them; quant/quantized_matrix.h says what they mean.
#pragma once

#include <cstdint>

namespace garam {

enum class QuantFormat : std::uint8_t {
    nf4,
    fp4,
    q8_0,
    q4_0,
    q4_1,
    q5_0,
    q5_1,
    iq4_nl,
    q4_k,
    q5_k,
    q6_k,
    iq4_xs
};

// bitsandbytes' formats; the others are GGUF's.
constexpr bool is_four_bit(QuantFormat format) {
    return format == QuantFormat::nf4 || format == QuantFormat::fp4;
}

}  // namespace garam
