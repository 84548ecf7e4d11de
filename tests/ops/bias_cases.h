// Cases of bias_add and bias_backward.
#pragma once

#include <vector>

#include "garam/runtime/stream.h"

namespace garam::testing {

struct BiasCase {
    DType dtype;
    std::int64_t tokens, out, pad;
    Cost add, backward;
};

inline const std::vector<BiasCase>& bias_cases() {
    static const std::vector<BiasCase> kCases = {
        {DType::f32, 1, 1, 0, {1, 8, 4}, {1, 8, 4}},
        {DType::f32, 7, 65, 3, {455, 2080, 1820}, {455, 2080, 260}},
        {DType::f32, 1100, 63, 0, {69300, 277452, 277200}, {69300, 277452, 252}},
        {DType::f32, 3, 3000, 1, {9000, 48000, 36000}, {9000, 48000, 12000}},
        {DType::bf16, 33, 65, 2, {2145, 4420, 4290}, {2145, 4550, 260}},
        {DType::bf16, 300, 1032, 8, {309600, 621264, 619200}, {309600, 623328, 4128}},
        {DType::f32, 0, 5, 0, {0, 20, 0}, {0, 20, 20}},
    };
    return kCases;
}

}  // namespace garam::testing
