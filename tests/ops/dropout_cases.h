// Cases of dropout, and its mask by the formula of ops/dropout.h.
#pragma once

#include <cmath>
#include <vector>

#include "garam/core/philox.h"
#include "garam/runtime/stream.h"

namespace garam::testing {

struct DropoutCase {
    DType dtype;
    std::int64_t tokens, columns, pad;
    float p;
    Cost cost, accumulating;
};

inline const std::vector<DropoutCase>& dropout_cases() {
    static const std::vector<DropoutCase> kCases = {
        {DType::f32, 1, 1, 0, 0.5f, {2, 16, 4}, {3, 20, 4}},
        {DType::f32, 7, 63, 2, 0.05f, {882, 1848, 1764}, {1323, 3612, 1764}},
        {DType::f32, 65, 576, 0, 0.25f, {74880, 150540, 149760}, {112320, 300300, 149760}},
        {DType::bf16, 33, 65, 1, 0.1f, {4290, 4686, 4290}, {6435, 8976, 4290}},
        {DType::f32, 3, 9, 0, 0.0f, {54, 144, 108}, {81, 252, 108}},
        // Rows that allow wide accesses: a last one that is not whole, and none.
        {DType::bf16, 9, 1036, 4, 0.3f, {18648, 18756, 18648}, {27972, 37404, 18648}},
        {DType::bf16, 3, 4608, 8, 0.5f, {27648, 27684, 27648}, {41472, 55332, 27648}},
        {DType::f32, 0, 9, 0, 0.5f, {0, 0, 0}, {0, 0, 0}},
        // More dropped than kept; far less than one in 65536.
        {DType::bf16, 5, 264, 0, 0.9f, {2640, 2700, 2640}, {3960, 5340, 2640}},
        {DType::f32, 4, 40, 4, 1e-6f, {320, 688, 640}, {480, 1328, 640}},
    };
    return kCases;
}

struct DropoutPlace {
    std::uint64_t seed;
    std::uint32_t step, module;
};

// The share of 2^16 that is dropped; what is kept is multiplied by the inverse of the rest.
inline double dropout_share(float p) {
    if (p == 0) return 0;
    const double share = std::floor(static_cast<double>(p) * 65536 + 0.5);
    return share < 1 ? 1 : share > 65535 ? 65535 : share;
}
inline double dropout_scale(float p) {
    return 65536 / (65536 - dropout_share(p));
}

inline bool dropout_keeps(const DropoutPlace& place, std::int32_t position, std::int64_t sample,
                          std::int64_t column, float p) {
    const std::uint64_t s = static_cast<std::uint64_t>(sample);
    const PhiloxWords words =
        philox<7>({static_cast<std::uint32_t>(column / 8), static_cast<std::uint32_t>(position),
                   static_cast<std::uint32_t>(s), static_cast<std::uint32_t>(s >> 32) ^ place.step},
                  place.seed ^ (std::uint64_t{place.module} << 32 | place.module));
    const std::uint32_t word = words[static_cast<std::size_t>(column % 8 / 2)];
    return (column % 2 == 0 ? word % 65536 : word / 65536) >= dropout_share(p);
}

}  // namespace garam::testing
