// Cases of cross_entropy, and its reference in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "garam/runtime/stream.h"

namespace garam::testing {

struct CrossEntropyCase {
    DType dtype;
    std::int64_t rows, vocab, pad;
    double size;  // of the logits
    Cost loss, gradient;
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
    };
    return kCases;
}

inline std::vector<double> cross_entropy_reference(const std::vector<double>& logits,
                                                   const std::vector<std::int32_t>& targets) {
    std::vector<double> losses;
    const std::size_t vocab = targets.empty() ? 0 : logits.size() / targets.size();
    for (std::size_t row = 0; row < targets.size(); ++row) {
        const double* const x = logits.data() + row * vocab;
        const double maximum = *std::max_element(x, x + vocab);
        double sum = 0;
        for (std::size_t i = 0; i < vocab; ++i)
            sum += std::exp(x[i] - maximum);
        losses.push_back(maximum + std::log(sum) - x[targets[row]]);
    }
    return losses;
}

}  // namespace garam::testing
