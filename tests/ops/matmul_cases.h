// Cases of matmul.
#pragma once

#include <vector>

#include "garam/ops/matmul.h"

namespace garam::testing {

struct MatmulCase {
    DType in, out;
    std::int64_t m, n, k, pad;
    MatmulOptions options;
    Cost cost;
    bool addend = false, bias = false;
};

inline const std::vector<MatmulCase>& matmul_cases() {
    constexpr DType f32 = DType::f32;
    constexpr DType bf16 = DType::bf16;
    static const std::vector<MatmulCase> kCases = {
        // {transpose_a, transpose_b, alpha, accumulate}
        {f32, f32, 1, 1, 1, 0, {}, {2, 8, 4}},
        {f32, f32, 7, 65, 63, 0, {}, {57330, 18144, 1820}},
        {f32, f32, 7, 65, 63, 3, {false, true}, {57330, 18144, 1820}},
        {f32, f32, 65, 7, 33, 2, {true, false}, {30030, 9504, 1820}},
        {f32, f32, 33, 17, 9, 1, {true, true, 0.5f}, {10098, 1800, 2244}},
        {f32, f32, 63, 65, 1, 1, {false, false, -2.0f, true}, {8190, 16892, 16380}},
        {f32, f32, 5, 1, 65, 0, {false, true, 1.0f, true}, {650, 1580, 20}},
        {f32, f32, 1, 129, 64, 5, {false, true}, {16512, 33280, 516}},
        {f32, f32, 40, 1100, 70, 0, {false, true, 1.5f, true}, {6160000, 495200, 176000}},
        {f32, f32, 9, 20, 2100, 3, {true, false, 1.0f, true}, {756000, 244320, 720}},
        {f32, f32, 1050, 3, 5, 0, {}, {31500, 21060, 12600}},
        {bf16, bf16, 7, 65, 63, 0, {false, true}, {57330, 9072, 910}},
        {bf16, f32, 65, 7, 33, 2, {true, false, 0.25f}, {30030, 4752, 1820}},
        {bf16, bf16, 17, 33, 64, 4, {false, false, 1.0f, true}, {71808, 7522, 1122}},
        {bf16, f32, 33, 64, 32, 0, {true, false, 2.0f, true}, {135168, 14656, 8448}},
        {bf16, bf16, 20, 1030, 2056, 0, {false, true}, {84707200, 4317600, 41200}},
        {bf16, bf16, 1, 64, 576, 0, {false, true}, {73728, 74880, 128}},
        {bf16, bf16, 5, 6, 7, 1, {true, true}, {420, 154, 60}},
        // Beyond one block of k (320 steps; pairs of bf16 are one step), of rows and of columns; tall
        // products with few columns, which are computed transposed; rows apart by whole pages.
        {f32, f32, 530, 40, 700, 3, {false, true, 0.5f, true}, {29680000, 1680800, 84800}},
        {f32, f32, 30, 300, 330, 1, {false, false, 1.0f}, {5940000, 435600, 36000}},
        {f32, f32, 300, 16, 650, 0, {true, false, 2.0f, true}, {6240000, 840800, 19200}},
        {f32, f32, 66, 18, 650, 2, {true, true, 1.0f}, {1544400, 218400, 4752}},
        {f32, f32, 3, 330, 640, 0, {false, true, 1.0f}, {1267200, 852480, 3960}},
        {f32, f32, 2, 70, 1024, 1024, {false, true, 1.0f}, {286720, 294912, 560}},
        {bf16, bf16, 530, 40, 1291, 3, {false, true, 0.5f, true}, {54738400, 1514140, 42400}},
        {bf16, bf16, 30, 300, 1300, 1, {false, false, 1.0f}, {23400000, 858000, 18000}},
        {bf16, f32, 300, 16, 661, 0, {true, false, 2.0f, true}, {6345600, 436952, 19200}},
        {bf16, bf16, 66, 18, 651, 2, {true, false, 1.0f}, {1546776, 109368, 2376}},
        {bf16, bf16, 3, 330, 640, 0, {false, true, 1.0f}, {1267200, 426240, 1980}},
        {bf16, f32, 15, 50, 64, 1984, {false, true, 1.0f, true}, {96000, 11320, 3000}},
        // {addend, bias}
        {f32, f32, 7, 65, 63, 3, {false, true, 0.5f}, {57330, 19964, 1820}, true, false},
        {f32, f32, 7, 65, 63, 0, {false, true}, {57785, 18404, 1820}, false, true},
        {f32, f32, 33, 40, 0, 2, {}, {1320, 5440, 5280}, true, true},
        {f32, f32, 5, 64, 16, 0, {false, false, 1.0f, true}, {10560, 5952, 1280}, false, true},
        {bf16, bf16, 70, 64, 128, 64, {false, true, 2.0f}, {1151360, 43392, 8960}, true, true},
        {bf16, bf16, 130, 264, 64, 8, {false, false}, {4427280, 119600, 68640}, true, true},
        {bf16, f32, 64, 48, 200, 0, {true, false, 0.5f}, {1228800, 57088, 12288}, true, false},
        {bf16, f32, 17, 30, 33, 1, {false, true}, {34170, 3222, 2040}, false, true},
        // Few rows against transposed rows of bf16, as in decoding.
        {bf16, bf16, 1, 640, 2560, 64, {false, true}, {3276800, 3281920, 1280}},
        {bf16, bf16, 1, 2561, 256, 64, {false, true}, {1313793, 1321988, 5122}, true, true},
        {bf16, f32, 1, 100, 2624, 0, {false, true, 0.5f, true}, {524900, 530848, 400}, false, true},
        {bf16, f32, 2, 1000, 328, 8, {false, true}, {1312000, 657312, 8000}},
        {bf16, bf16, 3, 70, 2568, 0, {false, true, 1.0f, true}, {1078560, 375348, 420}},
        {bf16, bf16, 4, 333, 1031, 1, {false, true}, {2746584, 697558, 2664}, true, false},
        {bf16, f32, 4, 96, 264, 8, {false, true, 2.0f}, {203136, 54720, 1536}, true, true},
    };
    return kCases;
}

}  // namespace garam::testing
