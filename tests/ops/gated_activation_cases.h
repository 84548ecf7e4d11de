// Cases of gated_activation_forward and gated_activation_backward, and their reference in double precision.
#pragma once

#include <cmath>
#include <vector>

#include "garam/core/activation.h"
#include "garam/runtime/stream.h"

namespace garam::testing {

struct GatedActivationCase {
    DType dtype;
    std::int64_t tokens, ffn, pad;
    Cost forward, backward;
    Activation activation = Activation::silu;
};

inline const std::vector<GatedActivationCase>& gated_activation_cases() {
    static const std::vector<GatedActivationCase> kCases = {
        {DType::f32, 1, 1, 0, {5, 8, 4}, {12, 12, 8}},
        {DType::f32, 3, 65, 0, {975, 1560, 780}, {2340, 2340, 1560}},
        {DType::f32, 7, 63, 5, {2205, 3528, 1764}, {5292, 5292, 3528}},
        {DType::f32, 70, 1000, 0, {350000, 560000, 280000}, {840000, 840000, 560000}},
        {DType::bf16, 7, 65, 3, {2275, 1820, 910}, {5460, 2730, 1820}},
        {DType::bf16, 2, 129, 0, {1290, 1032, 516}, {3096, 1548, 1032}},
        {DType::bf16, 6, 1048, 8, {31440, 25152, 12576}, {75456, 37728, 25152}},  // wide accesses
        {DType::f32, 0, 9, 0, {0, 0, 0}, {0, 0, 0}},
        {DType::f32, 1, 1, 0, {9, 8, 4}, {18, 12, 8}, Activation::gelu_tanh},
        {DType::f32, 7, 63, 5, {3969, 3528, 1764}, {7938, 5292, 3528}, Activation::gelu_tanh},
        {DType::f32,
         70,
         1000,
         0,
         {630000, 560000, 280000},
         {1260000, 840000, 560000},
         Activation::gelu_tanh},
        {DType::bf16, 7, 65, 3, {4095, 1820, 910}, {8190, 2730, 1820}, Activation::gelu_tanh},
        {DType::bf16,
         6,
         1048,
         8,
         {56592, 25152, 12576},
         {113184, 37728, 25152},
         Activation::gelu_tanh},
    };
    return kCases;
}

inline double activated(Activation activation, double x) {
    if (activation == Activation::silu) return x / (1 + std::exp(-x));
    const double u = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
    // tanh is too near -1 for a difference of doubles where x is far below 0.
    return x / (1 + std::exp(-2 * u));
}

// gate then up, end to end.
inline std::vector<double> gated_activation_reference(Activation activation,
                                                      const std::vector<double>& x) {
    const std::size_t n = x.size() / 2;
    std::vector<double> y;
    for (std::size_t i = 0; i < n; ++i)
        y.push_back(activated(activation, x[i]) * x[n + i]);
    return y;
}

}  // namespace garam::testing
