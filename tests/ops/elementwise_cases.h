// Shapes of the elementwise ops.
#pragma once

#include <vector>

#include "garam/runtime/stream.h"

namespace garam::testing {

struct ElementwiseCase {
    std::int64_t rows, columns, pad;
};

inline const std::vector<ElementwiseCase>& elementwise_cases() {
    static const std::vector<ElementwiseCase> kCases = {
        {1, 1, 0},
        {3, 7, 0},
        {7, 65, 3},
        {63, 33, 1},
        {1, 70000, 0},
        {3, 40000, 5},
        {0, 4, 0},
        // Pads that allow a card's widest accesses.
        {5, 4104, 8},
        {3, 1500, 4},
    };
    return kCases;
}

}  // namespace garam::testing
