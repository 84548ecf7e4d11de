// Cases of rotary, and its reference in double precision.
#pragma once

#include <vector>

#include "garam/runtime/stream.h"

namespace garam::testing {

struct RotaryCase {
    DType dtype;
    std::int64_t tokens, heads, head_dim, rotary_dim, pad;
    Cost cost;
};

inline const std::vector<RotaryCase>& rotary_cases() {
    static const std::vector<RotaryCase> kCases = {
        {DType::f32, 1, 1, 2, 2, 0, {6, 20, 8}},
        {DType::f32, 5, 3, 64, 64, 0, {2880, 5140, 3840}},
        {DType::f32, 7, 2, 80, 80, 9, {3360, 6748, 4480}},
        {DType::f32, 7, 2, 24, 10, 1, {420, 868, 560}},
        {DType::bf16, 65, 3, 64, 64, 3, {37440, 41860, 24960}},
        {DType::bf16, 3, 1, 6, 6, 0, {54, 120, 36}},
        {DType::f32, 600, 9, 64, 64, 0, {1036800, 1538400, 1382400}},
        {DType::bf16, 33, 5, 80, 80, 16, {39600, 37092, 26400}},  // wide accesses
        {DType::bf16, 3, 9, 128, 128, 8, {10368, 8460, 6912}},
        {DType::f32, 0, 2, 8, 8, 0, {0, 0, 0}},
    };
    return kCases;
}

inline std::vector<double> rotary_reference(std::vector<double> x, const RotaryCase& c,
                                            const std::vector<double>& cos,
                                            const std::vector<double>& sin,
                                            const std::vector<std::int32_t>& positions,
                                            bool inverse) {
    const std::int64_t half = c.rotary_dim / 2;
    for (std::int64_t t = 0; t < c.tokens; ++t) {
        for (std::int64_t head = 0; head < c.heads; ++head) {
            for (std::int64_t i = 0; i < half; ++i) {
                double& a = x[(t * c.heads + head) * c.head_dim + i];
                double& b = x[(t * c.heads + head) * c.head_dim + i + half];
                const double co = cos[positions[t] * half + i];
                const double si = (inverse ? -1 : 1) * sin[positions[t] * half + i];
                const double turned_a = a * co - b * si;
                b = b * co + a * si;
                a = turned_a;
            }
        }
    }
    return x;
}

}  // namespace garam::testing
