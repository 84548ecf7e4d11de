// Cases of dequantize and quantize.
#pragma once

#include <vector>

#include "garam/ops/dequantize.h"

namespace garam::testing {

struct DequantizeCase {
    QuantFormat format;
    std::int64_t rows, columns, block;
    bool is_double;
    std::int64_t first_row, count;
    DType out;
    std::int64_t pad;
    Cost cost;
};

// Rows that begin inside of a block, at an odd nibble, and end there; short last blocks; every format.
inline const std::vector<DequantizeCase>& dequantize_cases() {
    constexpr DType f32 = DType::f32;
    constexpr DType bf16 = DType::bf16;
    static const std::vector<DequantizeCase> kCases = {
        {QuantFormat::nf4, 1, 1, 64, false, 0, 1, f32, 0, {1, 5, 4}},
        {QuantFormat::nf4, 8, 64, 64, false, 0, 8, bf16, 0, {512, 288, 1024}},
        {QuantFormat::nf4, 8, 64, 64, true, 3, 5, f32, 3, {320, 170, 1280}},
        {QuantFormat::nf4, 12, 249, 64, false, 5, 3, bf16, 5, {747, 420.5, 1494}},
        {QuantFormat::nf4, 12, 249, 32, true, 1, 11, f32, 0, {2739, 1463, 10956}},
        {QuantFormat::nf4, 10, 33, 128, false, 7, 2, bf16, 1, {66, 35.4, 132}},
        {QuantFormat::nf4, 70, 576, 64, true, 0, 70, bf16, 8, {40320, 20806, 80640}},
        {QuantFormat::nf4, 300, 320, 64, true, 299, 1, f32, 0, {320, 165.09333333333333, 1280}},
        {QuantFormat::fp4, 12, 251, 64, false, 1, 9, f32, 2, {2259, 1273.5, 9036}},
        {QuantFormat::fp4, 16, 320, 256, true, 0, 16, bf16, 0, {5120, 2588, 10240}},
        {QuantFormat::fp4, 3, 5000, 4096, false, 1, 2, bf16, 0, {10000, 5010.666666666667, 20000}},
        {QuantFormat::nf4, 4, 64, 64, false, 2, 0, bf16, 0, {0, 0, 0}},
        {QuantFormat::q8_0, 5, 96, 64, false, 1, 3, f32, 0, {288, 306, 1152}},
        {QuantFormat::q8_0, 5, 96, 64, false, 1, 3, bf16, 7, {288, 306, 576}},
        {QuantFormat::q4_0, 5, 96, 64, false, 1, 3, f32, 0, {288, 162, 1152}},
        {QuantFormat::q4_0, 5, 96, 64, false, 1, 3, bf16, 7, {288, 162, 576}},
        {QuantFormat::q4_1, 5, 96, 64, false, 1, 3, f32, 0, {288, 180, 1152}},
        {QuantFormat::q4_1, 5, 96, 64, false, 1, 3, bf16, 7, {288, 180, 576}},
        {QuantFormat::q5_0, 5, 96, 64, false, 1, 3, f32, 0, {288, 198, 1152}},
        {QuantFormat::q5_0, 5, 96, 64, false, 1, 3, bf16, 7, {288, 198, 576}},
        {QuantFormat::q5_1, 5, 96, 64, false, 1, 3, f32, 0, {288, 216, 1152}},
        {QuantFormat::q5_1, 5, 96, 64, false, 1, 3, bf16, 7, {288, 216, 576}},
        {QuantFormat::iq4_nl, 5, 96, 64, false, 1, 3, f32, 0, {288, 162, 1152}},
        {QuantFormat::iq4_nl, 5, 96, 64, false, 1, 3, bf16, 7, {288, 162, 576}},
        {QuantFormat::q4_k, 5, 768, 64, false, 1, 3, f32, 0, {2304, 1296, 9216}},
        {QuantFormat::q4_k, 5, 768, 64, false, 1, 3, bf16, 7, {2304, 1296, 4608}},
        {QuantFormat::q5_k, 5, 768, 64, false, 1, 3, f32, 0, {2304, 1584, 9216}},
        {QuantFormat::q5_k, 5, 768, 64, false, 1, 3, bf16, 7, {2304, 1584, 4608}},
        {QuantFormat::q6_k, 5, 768, 64, false, 1, 3, f32, 0, {2304, 1890, 9216}},
        {QuantFormat::q6_k, 5, 768, 64, false, 1, 3, bf16, 7, {2304, 1890, 4608}},
        {QuantFormat::iq4_xs, 5, 768, 64, false, 1, 3, f32, 0, {2304, 1224, 9216}},
        {QuantFormat::iq4_xs, 5, 768, 64, false, 1, 3, bf16, 7, {2304, 1224, 4608}},
        {QuantFormat::q4_k, 40, 2560, 64, false, 0, 40, bf16, 0, {102400, 57600, 204800}},
    };
    return kCases;
}

struct QuantizeCase {
    QuantFormat format;
    std::int64_t rows, columns, block;
    bool is_double;
    DType in;
    Cost cost;
};

inline const std::vector<QuantizeCase>& quantize_cases() {
    constexpr DType f32 = DType::f32;
    constexpr DType bf16 = DType::bf16;
    static const std::vector<QuantizeCase> kCases = {
        {QuantFormat::nf4, 1, 1, 64, false, f32, {1, 4, 5}},
        {QuantFormat::nf4, 43, 249, 64, false, f32, {10707, 42828, 6026}},
        {QuantFormat::nf4, 43, 249, 64, true, bf16, {10707, 21414, 5530}},
        {QuantFormat::nf4, 160, 576, 128, true, bf16, {92160, 184320, 46816}},
        {QuantFormat::nf4, 7, 4096, 4096, false, f32, {28672, 114688, 14364}},
        {QuantFormat::fp4, 43, 249, 32, true, f32, {10707, 42828, 5701}},
        {QuantFormat::fp4, 64, 320, 64, false, bf16, {20480, 40960, 11520}},
        // More sums of absmax than threads of a block add up at once, and sums of large blocks.
        {QuantFormat::nf4, 1100, 2048, 64, true, bf16, {2252800, 4505600, 1162156}},
        {QuantFormat::nf4, 40, 1000, 512, true, f32, {40000, 160000, 20087}},
        {QuantFormat::nf4, 9, 5000, 4096, true, bf16, {45000, 90000, 22519}},
        {QuantFormat::nf4, 33, 8000, 256, true, bf16, {264000, 528000, 133056}},
    };
    return kCases;
}

}  // namespace garam::testing
