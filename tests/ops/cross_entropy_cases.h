// Cases of cross_entropy, and its reference in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "garam/ops/cross_entropy.h"

namespace garam::testing {

struct CrossEntropyCase {
    DType dtype;
    std::int64_t rows, vocab, pad;
    double size;  // of the logits
    Cost loss, gradient;
    LogitScale scale = {};
    float smoothing = 0;
};

inline const std::vector<CrossEntropyCase>& cross_entropy_cases() {
    static const std::vector<CrossEntropyCase> kCases = {
        {DType::f32, 1, 1, 0, 1, {4, 8, 4}, {6, 8, 8}},
        {DType::f32, 3, 7, 2, 1, {84, 96, 12}, {126, 96, 96}},
        {DType::f32, 5, 65, 0, 30, {1300, 1320, 20}, {1950, 1320, 1320}},
        {DType::f32, 7, 5000, 1, 5, {140000, 140028, 28}, {210000, 140028, 140028}},
        {DType::bf16, 7, 63, 3, 3, {1764, 910, 28}, {2646, 910, 910}},
        {DType::bf16, 2, 4097, 0, 3, {32776, 16396, 8}, {49164, 16396, 16396}},
        // Several rounds of a card's block; pads that forbid its widest accesses and that allow
        // them.
        {DType::f32, 2, 40003, 5, 8, {320024, 320032, 8}, {480036, 320032, 320032}},
        {DType::bf16, 3, 70001, 7, 4, {840012, 420018, 12}, {1260018, 420018, 420018}},
        // More than the shared memory of a block holds.
        {DType::f32, 2, 120001, 3, 4, {960008, 960016, 8}, {1440012, 960016, 960016}},
        {DType::f32, 0, 9, 0, 1, {0, 0, 0}, {0, 0, 0}},
        // A factor (1 and 2 flops more), a soft cap (4 and 8).
        {DType::f32, 3, 7, 2, 1, {105, 96, 12}, {168, 96, 96}, {0.125f, 0}},
        {DType::bf16, 2, 4097, 0, 3, {40970, 16396, 8}, {65552, 16396, 16396}, {0.25f, 0}},
        {DType::f32, 1, 1, 0, 1, {8, 8, 4}, {14, 8, 8}, {1, 30}},
        {DType::f32, 5, 65, 0, 30, {2600, 1320, 20}, {4550, 1320, 1320}, {1, 30}},
        {DType::f32, 7, 5000, 1, 5, {280000, 140028, 28}, {490000, 140028, 140028}, {0.5f, 4}},
        {DType::bf16, 3, 4103, 8, 3, {98472, 24630, 12}, {172326, 24630, 24630}, {1, 3}},
        {DType::f32, 2, 120001, 3, 4, {1920016, 960016, 8}, {3360028, 960016, 960016}, {1, 30}},
        // Label smoothing: 1 and 2 flops more.
        {DType::f32, 3, 7, 2, 1, {105, 96, 12}, {168, 96, 96}, {}, 0.1f},
        {DType::f32, 7, 5000, 1, 5, {175000, 140028, 28}, {280000, 140028, 140028}, {}, 0.5f},
        {DType::bf16, 2, 4097, 0, 3, {40970, 16396, 8}, {65552, 16396, 16396}, {}, 0.1f},
        {DType::f32, 5, 65, 0, 30, {2925, 1320, 20}, {5200, 1320, 1320}, {1, 30}, 0.2f},
        {DType::f32, 2, 40003, 5, 8, {400030, 320032, 8}, {640048, 320032, 320032}, {}, 0.9f},
    };
    return kCases;
}

inline double scaled(double logit, const LogitScale& scale) {
    const double x = logit * static_cast<double>(scale.factor);
    const auto cap = static_cast<double>(scale.softcap);
    return cap > 0 ? cap * std::tanh(x / cap) : x;
}
inline double slope(double logit, const LogitScale& scale) {
    const auto factor = static_cast<double>(scale.factor);
    if (scale.softcap == 0) return factor;
    const double t = std::tanh(logit * factor / static_cast<double>(scale.softcap));
    return (1 - t * t) * factor;
}

// Of logits that are scaled already.
inline std::vector<double> cross_entropy_reference(const std::vector<double>& logits,
                                                   const std::vector<std::int32_t>& targets,
                                                   double smoothing = 0) {
    std::vector<double> losses;
    const std::size_t vocab = targets.empty() ? 0 : logits.size() / targets.size();
    for (std::size_t row = 0; row < targets.size(); ++row) {
        const double* const x = logits.data() + row * vocab;
        const double maximum = *std::max_element(x, x + vocab);
        double sum = 0;
        double values = 0;
        for (std::size_t i = 0; i < vocab; ++i) {
            sum += std::exp(x[i] - maximum);
            values += x[i];
        }
        losses.push_back(maximum + std::log(sum) - (1 - smoothing) * x[targets[row]] -
                         smoothing * values / static_cast<double>(vocab));
    }
    return losses;
}

}  // namespace garam::testing
