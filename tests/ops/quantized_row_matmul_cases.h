// Cases of rms_norm_matmul and gated_activation_matmul with a quantised weight, and of quantized_matmul for few rows.
#pragma once

#include <vector>

#include "garam/ops/quantized_row_matmul.h"

namespace garam::testing {

struct QuantizedRowCase {
    QuantFormat format;
    std::int64_t n, k, block;
    bool is_double;
    DType in, out;
    std::int64_t rows, pad, tail;
    bool addend, bias;
    float alpha = 1;
};

// One row is one kernel on a card. Rows fewer than a card has multiprocessors, and tiles of 16 of them for each, of which
// the last has up to 8 or more; steps of 128 columns, whole and not, shared out evenly among warps and not; blocks of
// 32, of 64 that begin within a row's 64 columns, and larger ones; rows whose codes begin within a byte. With double
// quantisation: tiles of 4 rows and ranges of 512 columns, the last of them whole and not; more rows of a block than it has
// threads.
inline const std::vector<QuantizedRowCase>& quantized_row_cases() {
    constexpr DType f32 = DType::f32;
    constexpr DType bf16 = DType::bf16;
    constexpr QuantFormat nf4 = QuantFormat::nf4;
    constexpr QuantFormat fp4 = QuantFormat::fp4;
    static const std::vector<QuantizedRowCase> kCases = {
        {nf4, 1, 32, 32, false, bf16, bf16, 1, 0, 0, false, false},
        {nf4, 48, 2560, 64, true, bf16, bf16, 1, 0, 0, true, false},
        {nf4, 333, 576, 64, false, bf16, bf16, 1, 8, 64, true, false, 0.5f},
        {nf4, 1203, 256, 64, true, bf16, f32, 1, 0, 16, false, true},
        {nf4, 21, 96, 64, true, bf16, bf16, 1, 0, 8, true, true},
        {nf4, 77, 160, 32, true, bf16, bf16, 1, 0, 0, false, true, 2.0f},
        {fp4, 130, 1056, 128, false, bf16, bf16, 1, 8, 24, true, false},
        {fp4, 40, 4096, 4096, true, bf16, bf16, 1, 0, 0, false, false},
        {nf4, 150, 7168, 64, true, bf16, bf16, 1, 0, 0, true, false},
        {nf4, 9, 14336, 64, true, bf16, bf16, 1, 0, 0, true, false},
        {nf4, 2700, 320, 64, true, bf16, bf16, 1, 0, 8, true, false},
        {nf4, 3800, 96, 32, false, bf16, f32, 1, 0, 0, false, true},
        {fp4, 3300, 128, 64, false, bf16, bf16, 1, 0, 0, true, false},
        {nf4, 40, 32, 64, true, bf16, bf16, 1, 0, 0, true, false},
        {nf4, 700, 576, 64, true, bf16, bf16, 1, 0, 8, true, false},
        {nf4, 150, 2112, 64, true, bf16, bf16, 1, 0, 0, true, true},
        {fp4, 90, 1152, 128, true, bf16, f32, 1, 0, 0, false, false},
        {nf4, 70000, 64, 64, true, bf16, bf16, 1, 0, 8, true, false},
        // Whose rows that kernel makes on no card; given ones of 17,920 columns it takes where a block may have more than
        // 99 KB.
        {nf4, 6, 17920, 64, true, bf16, bf16, 1, 0, 0, true, false},
        {nf4, 33, 77, 64, true, bf16, bf16, 1, 0, 3, true, true},
        {nf4, 33, 128, 64, false, bf16, f32, 1, 0, 12, false, false},
        {nf4, 20, 192, 64, true, f32, f32, 1, 0, 8, true, true},
        {QuantFormat::q4_k, 31, 512, 64, false, bf16, bf16, 1, 0, 8, true, false},
        {QuantFormat::q8_0, 31, 96, 64, false, f32, f32, 2, 1, 0, false, true},
        // More rows: within those of one product of tensor cores, 4 (2 where blocks are small), beyond, and as many as
        // there may be; more sums than blocks on all multiprocessors hold.
        {nf4, 2400, 192, 64, true, bf16, bf16, 3, 8, 0, true, false},
        {nf4, 50, 640, 64, false, bf16, bf16, 4, 0, 8, false, true},
        {nf4, 50, 640, 64, true, bf16, bf16, 5, 0, 0, true, false},
        {fp4, 61, 224, 32, true, bf16, bf16, 2, 0, 0, true, false},
        {nf4, 61, 224, 64, true, bf16, f32, 3, 0, 0, false, true},
        {nf4, 37, 256, 64, true, bf16, bf16, 8, 8, 0, true, false},
        {nf4, 34000, 32, 64, true, bf16, bf16, 16, 0, 0, false, false},
        {nf4, 90, 576, 64, true, bf16, bf16, 2, 0, 0, true, false},
        {nf4, 21, 2560, 64, false, bf16, f32, 7, 8, 8, true, true, 0.5f},
        {fp4, 133, 96, 32, true, bf16, bf16, 9, 16, 0, false, true},
        {nf4, 40, 14336, 64, true, bf16, bf16, 16, 0, 0, true, false},
        {nf4, 24, 320, 64, true, bf16, bf16, 16, 1, 16, false, false},
        {nf4, 24, 320, 64, true, bf16, bf16, 0, 0, 0, false, false},
    };
    return kCases;
}

}  // namespace garam::testing
