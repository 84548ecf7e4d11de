// Activations of gated MLPs.
#pragma once

#include <cstdint>

namespace garam {

enum class Activation : std::uint8_t {
    silu,       // x / (1 + exp(-x))
    gelu_tanh,  // x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel, 2016)
};

}  // namespace garam
