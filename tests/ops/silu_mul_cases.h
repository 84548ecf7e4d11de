// Cases of silu_mul_forward and silu_mul_backward, and their reference in double precision.
#pragma once

#include <cmath>
#include <vector>

#include "garam/runtime/stream.h"

namespace garam::testing {

struct SiluMulCase {
    DType dtype;
    std::int64_t tokens, ffn, pad;
    Cost forward, backward;
};

inline const std::vector<SiluMulCase>& silu_mul_cases() {
    static const std::vector<SiluMulCase> kCases = {
        {DType::f32, 1, 1, 0, {5, 8, 4}, {12, 12, 8}},
        {DType::f32, 3, 65, 0, {975, 1560, 780}, {2340, 2340, 1560}},
        {DType::f32, 7, 63, 5, {2205, 3528, 1764}, {5292, 5292, 3528}},
        {DType::f32, 70, 1000, 0, {350000, 560000, 280000}, {840000, 840000, 560000}},
        {DType::bf16, 7, 65, 3, {2275, 1820, 910}, {5460, 2730, 1820}},
        {DType::bf16, 2, 129, 0, {1290, 1032, 516}, {3096, 1548, 1032}},
        {DType::bf16, 6, 1048, 8, {31440, 25152, 12576}, {75456, 37728, 25152}},  // wide accesses
        {DType::f32, 0, 9, 0, {0, 0, 0}, {0, 0, 0}},
    };
    return kCases;
}

// gate then up, end to end.
inline std::vector<double> silu_mul_reference(const std::vector<double>& x) {
    const std::size_t n = x.size() / 2;
    std::vector<double> y;
    for (std::size_t i = 0; i < n; ++i)
        y.push_back(x[i] / (1 + std::exp(-x[i])) * x[n + i]);
    return y;
}

}  // namespace garam::testing
