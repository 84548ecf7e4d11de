// Cases of dora_scale, scale_columns and dora_backward.
#pragma once

#include <vector>

#include "garam/runtime/stream.h"

namespace garam::testing {

struct DoraScaleCase {
    DType dtype;
    std::int64_t out, in, rank, pad;
    Cost cost;
};

inline const std::vector<DoraScaleCase>& dora_scale_cases() {
    static const std::vector<DoraScaleCase> kCases = {
        {DType::f32, 1, 1, 1, 0, {4, 16, 8}},
        {DType::f32, 9, 33, 3, 5, {2376, 1728, 72}},
        {DType::f32, 64, 64, 8, 0, {73728, 20736, 512}},
        {DType::bf16, 17, 2052, 16, 4, {1186056, 202252, 136}},
        {DType::bf16, 13, 100, 5, 1, {15600, 4912, 104}},
        {DType::bf16, 8, 1028, 64, 64, {1069120, 281696, 64}},
        {DType::f32, 0, 5, 2, 0, {0, 40, 0}},
    };
    return kCases;
}

struct ColumnsCase {
    DType dtype;
    std::int64_t tokens, out, pad;
    float offset;
    bool bias, addend;
    Cost scale, backward;
};

inline const std::vector<ColumnsCase>& columns_cases() {
    static const std::vector<ColumnsCase> kCases = {
        {DType::f32, 1, 1, 0, 0, false, false, {1, 8, 4}, {3, 20, 8}},
        {DType::f32, 7, 65, 3, -1, true, false, {1365, 2340, 1820}, {1365, 4420, 2080}},
        {DType::f32,
         1100,
         63,
         0,
         0,
         false,
         true,
         {138600, 554652, 277200},
         {207900, 555156, 277452}},
        {DType::f32, 3, 3000, 4, 0, true, true, {27000, 96000, 36000}, {27000, 108000, 48000}},
        {DType::bf16, 33, 65, 2, -1, false, false, {4290, 4550, 4290}, {6435, 9360, 4550}},
        {DType::bf16,
         300,
         1032,
         8,
         0,
         true,
         true,
         {928800, 1244592, 619200},
         {928800, 1250784, 623328}},
        {DType::bf16, 40, 72, 0, 0, false, true, {5760, 11808, 5760}, {8640, 12384, 6048}},
        {DType::f32, 0, 5, 0, 0, true, false, {0, 40, 0}, {0, 60, 20}},
    };
    return kCases;
}

}  // namespace garam::testing
