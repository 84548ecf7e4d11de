// Cases of rms_norm_forward and rms_norm_backward, and their reference in double precision.
#pragma once

#include <cmath>
#include <vector>

#include "garam/ops/rms_norm.h"

namespace garam::testing {

struct RmsNormCase {
    DType dtype;
    std::int64_t tokens, hidden, pad;
    bool accumulate, learns;  // of the backward
    Cost forward, backward;
    std::int64_t heads = 1;  // in a row, of `hidden` each
    float weight_offset = 0;
    bool rounds_once = false;
    bool in_place = false;  // y over x, dx over dy

    RmsNormOptions options() const { return {weight_offset, rounds_once, heads > 1 ? hidden : 0}; }
    std::int64_t rows() const { return tokens * heads; }
};

inline const std::vector<RmsNormCase>& rms_norm_cases() {
    static const std::vector<RmsNormCase> kCases = {
        // flops, bytes read, bytes written; the second cost is the backward's
        {DType::f32, 1, 1, 0, false, true, {4, 8, 8}, {9, 20, 8}},
        {DType::f32, 3, 7, 0, true, true, {84, 112, 96}, {210, 320, 112}},
        {DType::f32, 7, 65, 3, false, false, {1820, 2080, 1848}, {2730, 3928, 1820}},
        {DType::f32, 37, 63, 5, true, false, {9324, 9576, 9472}, {16317, 28372, 9324}},
        {DType::f32, 130, 576, 0, false, true, {299520, 301824, 300040}, {673920, 604168, 301824}},
        {DType::bf16, 5, 65, 1, false, true, {1300, 780, 670}, {2925, 1710, 910}},
        {DType::bf16, 33, 48, 0, true, true, {6336, 3264, 3300}, {15840, 9924, 3360}},
        // Every cut that a card makes of long rows.
        {DType::bf16, 9, 1504, 8, true, true, {54144, 30080, 27108}, {135360, 90276, 33088}},
        {DType::bf16, 5, 2560, 0, true, false, {51200, 30720, 25620}, {89600, 81940, 25600}},
        {DType::bf16, 6, 4608, 16, false, true, {110592, 64512, 55320}, {248832, 138264, 73728}},
        {DType::bf16, 3, 9000, 8, true, true, {108000, 72000, 54012}, {270000, 216012, 90000}},
        {DType::f32, 6, 4100, 4, false, true, {98400, 114800, 98424}, {221400, 229624, 114800}},
        {DType::f32, 0, 8, 0, false, true, {0, 32, 0}, {0, 64, 32}},
        // An offset, and heads.
        {DType::bf16,
         9,
         1504,
         8,
         true,
         true,
         {54144, 30080, 27108},
         {135360, 90276, 33088},
         1,
         1,
         true},
        {DType::f32,
         7,
         65,
         3,
         false,
         false,
         {1820, 2080, 1848},
         {2730, 3928, 1820},
         1,
         1,
         true,
         true},
        {DType::f32, 5, 16, 7, false, true, {960, 1024, 1020}, {2160, 2108, 1024}, 3},
        {DType::bf16,
         33,
         128,
         128,
         false,
         true,
         {67584, 34048, 34320},
         {152064, 68880, 34304},
         4,
         0,
         false,
         true},
        {DType::bf16, 7, 65, 3, true, true, {3640, 1950, 1876}, {9100, 5906, 2080}, 2, 1, true},
        {DType::f32,
         70,
         64,
         0,
         false,
         false,
         {143360, 143616, 145600},
         {215040, 289216, 143360},
         8,
         0,
         false,
         true},
    };
    return kCases;
}

// x [tokens, hidden] then weight [hidden], end to end; gives y.
inline std::vector<double> rms_norm_reference(const std::vector<double>& x_and_weight,
                                              std::int64_t tokens, std::int64_t hidden, double eps,
                                              double weight_offset = 0) {
    std::vector<double> y;
    const double* const weight = x_and_weight.data() + tokens * hidden;
    for (std::int64_t t = 0; t < tokens; ++t) {
        const double* const x = x_and_weight.data() + t * hidden;
        double squares = 0;
        for (std::int64_t i = 0; i < hidden; ++i)
            squares += x[i] * x[i];
        const double rstd = 1 / std::sqrt(squares / static_cast<double>(hidden) + eps);
        for (std::int64_t i = 0; i < hidden; ++i)
            y.push_back(x[i] * rstd * (weight_offset + weight[i]));
    }
    return y;
}

}  // namespace garam::testing
