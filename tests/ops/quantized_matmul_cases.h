// Cases of quantized_matmul.
#pragma once

#include <vector>

#include "garam/ops/quantized_matmul.h"

namespace garam::testing {

struct QuantizedMatmulCase {
    QuantFormat format;
    std::int64_t rows, columns, block;
    bool is_double;
    DType in, out;
    std::int64_t m, pad;
    MatmulOptions options;
    Cost cost;
    bool addend = false, bias = false;
};

// Beyond one block of k, of rows and of columns; blocks of codes that parts of rows begin in, at odd nibbles too; few
// rows as in decoding; every format.
inline const std::vector<QuantizedMatmulCase>& quantized_matmul_cases() {
    using enum QuantFormat;
    constexpr DType f32 = DType::f32;
    constexpr DType bf16 = DType::bf16;
    const auto options = [](bool transpose_b, float alpha, bool accumulate) {
        return MatmulOptions{.transpose_b = transpose_b, .alpha = alpha, .accumulate = accumulate};
    };
    const auto forward = [&](float alpha = 1, bool accumulate = false) {
        return options(true, alpha, accumulate);
    };
    const auto backward = [&](float alpha = 1, bool accumulate = false) {
        return options(false, alpha, accumulate);
    };
    static const std::vector<QuantizedMatmulCase> kCases = {
        {nf4, 65, 63, 64, false, f32, f32, 7, 0, forward(), {61425, 4068, 1820}},
        {nf4, 65, 63, 64, true, f32, f32, 7, 3, backward(0.5f), {61425, 3940, 1764}},
        {nf4, 330, 640, 64, true, f32, f32, 1, 0, forward(), {633930, 112836, 1320}, false, true},
        {nf4, 330, 640, 64, true, f32, f32, 3, 2, forward(1, true), {1478400, 120596, 3960}},
        {nf4, 700, 300, 64, false, f32, f32, 30, 1, backward(1, true), {12810000, 238128, 36000}},
        {nf4,
         40,
         701,
         64,
         false,
         f32,
         f32,
         530,
         0,
         forward(2.0f),
         {29750440, 1586696, 84800},
         true,
         false},
        {fp4, 33, 17, 32, false, f32, f32, 9, 0, forward(), {10956, 1097, 1188}, false, true},
        {nf4, 66, 64, 64, false, bf16, bf16, 40, 0, forward(), {342144, 7496, 5280}},
        {nf4, 66, 64, 64, true, bf16, bf16, 40, 8, backward(), {342144, 12586, 5120}, true, false},
        {nf4, 1030, 2056, 64, true, bf16, bf16, 20, 0, forward(), {86824880, 1174693, 41200}},
        {nf4,
         1300,
         333,
         64,
         false,
         bf16,
         f32,
         33,
         0,
         backward(2.0f, true),
         {29015289, 374598, 43956},
         false,
         true},
        {nf4,
         70,
         1291,
         64,
         false,
         bf16,
         bf16,
         130,
         3,
         forward(),
         {23595670, 404837, 18200},
         true,
         true},
        {fp4, 300, 1280, 128, true, bf16, bf16, 70, 0, backward(), {54144000, 237052, 179200}},
        {nf4, 640, 2560, 64, true, bf16, bf16, 1, 0, forward(), {4915200, 850324, 1280}},
        {nf4,
         333,
         1031,
         64,
         false,
         bf16,
         bf16,
         4,
         1,
         forward(),
         {3089907, 204034, 2664},
         true,
         false},
        {nf4,
         70,
         2568,
         64,
         true,
         bf16,
         f32,
         3,
         0,
         forward(0.5f, true),
         {1258530, 109265, 840},
         false,
         true},
        {fp4, 100, 576, 64, false, bf16, bf16, 16, 0, forward(), {1900800, 50832, 3200}},
        {nf4, 700, 96, 64, false, bf16, bf16, 2, 0, backward(), {336000, 40600, 384}},
        {q8_0, 40, 160, 64, false, f32, f32, 3, 0, forward(), {44800, 8720, 480}},
        {q8_0, 40, 160, 64, false, bf16, bf16, 19, 0, backward(), {249600, 8320, 6080}},
        {q8_0, 40, 160, 64, false, bf16, bf16, 2, 0, forward(), {32000, 7440, 160}},
        {q4_0, 40, 160, 64, false, f32, f32, 3, 0, forward(), {44800, 5520, 480}},
        {q4_0, 40, 160, 64, false, bf16, bf16, 19, 0, forward(), {249600, 9680, 1520}},
        {q4_0, 40, 160, 64, false, bf16, bf16, 2, 0, forward(), {32000, 4240, 160}},
        {q4_1, 40, 160, 64, false, f32, f32, 3, 0, forward(), {44800, 5920, 480}},
        {q4_1, 40, 160, 64, false, bf16, bf16, 19, 0, backward(), {249600, 5520, 6080}},
        {q4_1, 40, 160, 64, false, bf16, bf16, 2, 0, forward(), {32000, 4640, 160}},
        {q5_0, 40, 160, 64, false, f32, f32, 3, 0, forward(), {44800, 6320, 480}},
        {q5_0, 40, 160, 64, false, bf16, bf16, 19, 0, forward(), {249600, 10480, 1520}},
        {q5_0, 40, 160, 64, false, bf16, bf16, 2, 0, forward(), {32000, 5040, 160}},
        {q5_1, 40, 160, 64, false, f32, f32, 3, 0, forward(), {44800, 6720, 480}},
        {q5_1, 40, 160, 64, false, bf16, bf16, 19, 0, backward(), {249600, 6320, 6080}},
        {q5_1, 40, 160, 64, false, bf16, bf16, 2, 0, forward(), {32000, 5440, 160}},
        {iq4_nl, 40, 160, 64, false, f32, f32, 3, 0, forward(), {44800, 5520, 480}},
        {iq4_nl, 40, 160, 64, false, bf16, bf16, 19, 0, forward(), {249600, 9680, 1520}},
        {iq4_nl, 40, 160, 64, false, bf16, bf16, 2, 0, forward(), {32000, 4240, 160}},
        {q4_k, 40, 768, 64, false, f32, f32, 3, 0, forward(), {215040, 26496, 480}},
        {q4_k, 40, 768, 64, false, bf16, bf16, 19, 0, backward(), {1198080, 18800, 29184}},
        {q4_k, 40, 768, 64, false, bf16, bf16, 2, 0, forward(), {153600, 20352, 160}},
        {q5_k, 40, 768, 64, false, f32, f32, 3, 0, forward(), {215040, 30336, 480}},
        {q5_k, 40, 768, 64, false, bf16, bf16, 19, 0, forward(), {1198080, 50304, 1520}},
        {q5_k, 40, 768, 64, false, bf16, bf16, 2, 0, forward(), {153600, 24192, 160}},
        {q6_k, 40, 768, 64, false, f32, f32, 3, 0, forward(), {215040, 34416, 480}},
        {q6_k, 40, 768, 64, false, bf16, bf16, 19, 0, backward(), {1198080, 26720, 29184}},
        {q6_k, 40, 768, 64, false, bf16, bf16, 2, 0, forward(), {153600, 28272, 160}},
        {iq4_xs, 40, 768, 64, false, f32, f32, 3, 0, forward(), {215040, 25536, 480}},
        {iq4_xs, 40, 768, 64, false, bf16, bf16, 19, 0, forward(), {1198080, 45504, 1520}},
        {iq4_xs, 40, 768, 64, false, bf16, bf16, 2, 0, forward(), {153600, 19392, 160}},
        {q6_k, 700, 512, 64, false, f32, f32, 21, 0, backward(), {15411200, 352800, 43008}},
        {q4_k, 50, 2560, 64, false, bf16, bf16, 33, 0, forward(), {8576000, 240960, 3300}},
    };
    return kCases;
}

}  // namespace garam::testing
