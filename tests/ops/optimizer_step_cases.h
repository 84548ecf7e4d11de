// Cases of adamw_step and sgd_step, and their reference in double precision.
#pragma once

#include <cmath>
#include <vector>

#include "garam/ops/optimizer_step.h"

namespace garam::testing {

struct AdamWCase {
    std::int64_t n;
    AdamWOptions options;
    float gradient_scale;
    Cost cost;
};

inline const std::vector<AdamWCase>& adamw_cases() {
    static const std::vector<AdamWCase> kCases = {
        {1, {1e-3, 0.9, 0.999, 1e-8, 0.01, 1}, 1.0f, {15, 16, 12}},
        {65, {1e-2, 0.9, 0.999, 1e-8, 0.1, 5}, 0.125f, {975, 1040, 780}},
        {70001, {1e-3, 0.8, 0.99, 1e-6, 0.0, 100}, 2.5f, {1050015, 1120016, 840012}},
        {0, {1e-3, 0.9, 0.999, 1e-8, 0.01, 1}, 1.0f, {0, 0, 0}},
    };
    return kCases;
}

struct SgdCase {
    std::int64_t n;
    SgdOptions options;
    float gradient_scale;
    Cost cost;
};

inline const std::vector<SgdCase>& sgd_cases() {
    static const std::vector<SgdCase> kCases = {
        {63, {0.1, 0, 0, false, 0.01, 3}, 0.5f, {315, 504, 252}},
        {63, {0.1, 0.9, 0, false, 0, 1}, 1.0f, {315, 504, 504}},
        {70001, {0.1, 0.9, 0.1, false, 0.02, 2}, 0.5f, {560008, 840012, 560008}},
        {7, {0.1, 0.9, 0, true, 0.02, 2}, 1.0f, {70, 84, 56}},
    };
    return kCases;
}

}  // namespace garam::testing
