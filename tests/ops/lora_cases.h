// Cases of the ops on groups of adapters.
#pragma once

#include <vector>

#include "garam/ops/lora.h"

namespace garam::testing {

struct LoraRows {
    std::int64_t begin, end;  // of the stacked output
};

struct LoraCase {
    DType dtype;
    std::int64_t tokens, in, out, rank, tail;
    std::vector<LoraRows> parts;
    float dropout;
    std::int64_t pad;  // of every matrix; 0 modulo 8 and in of the same: the kernels made for it
    float scaling = 2;
    bool fused() const { return dtype == DType::bf16 && in % 8 == 0 && pad % 8 == 0 && rank != 24; }
};

inline const std::vector<LoraCase>& lora_cases() {
    constexpr DType f32 = DType::f32;
    constexpr DType bf16 = DType::bf16;
    static const std::vector<LoraCase> kCases = {
        {f32, 7, 12, 20, 4, 16, {{0, 12}, {12, 20}}, 0, 0},
        {f32, 19, 37, 30, 5, 16, {{0, 9}, {9, 17}, {22, 30}}, 0.3f, 3},
        {f32, 1, 8, 8, 16, 16, {{0, 8}}, 0.5f, 0},
        // q, k, v; an unadapted linear in the middle; one part; gate and up.
        {bf16, 70, 264, 96, 16, 64, {{0, 48}, {48, 72}, {72, 96}}, 0.05f, 64},
        {bf16, 70, 264, 96, 16, 64, {{0, 48}, {48, 72}, {72, 96}}, 0, 64},
        {bf16, 33, 520, 90, 16, 32, {{0, 50}, {60, 90}}, 0.3f, 8},
        {bf16, 1, 64, 40, 16, 16, {{0, 40}}, 0.1f, 0},
        {bf16, 130, 328, 64, 32, 64, {{0, 24}, {24, 64}}, 0.2f, 8},
        {bf16, 45, 136, 64, 8, 16, {{0, 16}, {16, 64}}, 0.2f, 0},
        {bf16, 45, 136, 64, 8, 32, {{0, 16}, {16, 24}, {40, 64}}, 0.2f, 16},
        {bf16, 64, 96, 72, 64, 64, {{8, 72}}, 0.1f, 8},
        {bf16, 17, 40, 24, 8, 16, {{0, 24}}, 0, 0},
        // Widths of whole words of kept masks.
        {bf16, 300, 544, 96, 16, 64, {{0, 48}, {48, 72}, {72, 96}}, 0.1f, 64},
        {bf16, 77, 288, 640, 16, 16, {{0, 640}}, 0.1f, 8},
        {bf16, 205, 352, 64, 32, 64, {{0, 24}, {24, 64}}, 0.2f, 0},
        {bf16, 45, 160, 64, 8, 32, {{0, 16}, {16, 24}, {40, 64}}, 0.2f, 16},
        {bf16, 150, 64, 264, 64, 64, {{0, 264}}, 0.1f, 8},
        // Composed: a rank, a width and a pitch that the kernels have not.
        {bf16, 21, 72, 40, 24, 64, {{0, 16}, {16, 40}}, 0.3f, 8},
        {bf16, 21, 75, 40, 16, 32, {{0, 16}, {16, 40}}, 0.3f, 1},
        // Many tokens, cut into pieces.
        {bf16, 1037, 520, 48, 16, 64, {{0, 16}, {16, 32}, {32, 48}}, 0.1f, 64},
    };
    return kCases;
}

}  // namespace garam::testing
