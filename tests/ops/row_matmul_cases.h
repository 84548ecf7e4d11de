// Cases of rms_norm_matmul and gated_activation_matmul.
#pragma once

#include <vector>

#include "garam/ops/row_matmul.h"

namespace garam::testing {

struct RowMatmulCase {
    DType in, out;
    std::int64_t rows, made, tail, n, pad;
    bool addend, bias;
    Cost norm, silu;
    float alpha = 1;
};

inline const std::vector<RowMatmulCase>& row_matmul_cases() {
    constexpr DType f32 = DType::f32;
    constexpr DType bf16 = DType::bf16;
    static const std::vector<RowMatmulCase> kCases = {
        {f32, f32, 3, 65, 0, 7, 1, false, false, {3510, 2860, 84}, {3705, 3380, 84}},
        {f32, f32, 2, 40, 8, 33, 0, true, true, {6722, 7276, 264}, {6802, 7436, 264}},
        {bf16, bf16, 5, 64, 16, 20, 8, true, false, {17280, 4328, 200}, {17600, 4840, 200}},
        {bf16, f32, 2, 72, 0, 9, 0, false, true, {3186, 1764, 72}, {3330, 1908, 72}},
        {bf16, bf16, 0, 16, 0, 4, 0, false, false, {0, 160, 0}, {0, 128, 0}},
        {bf16, bf16, 1, 33, 0, 5, 1, false, false, {462, 462, 10}, {495, 462, 10}},
        // One row: fewer rows of b than a card has multiprocessors, and many for each; steps that rows share
        // out evenly among warps and that they do not; the columns of adapters.
        {bf16, bf16, 1, 64, 0, 1, 0, false, false, {384, 384, 2}, {448, 384, 2}},
        {bf16, bf16, 1, 2560, 0, 48, 0, false, false, {256000, 256000, 96}, {258560, 256000, 96}},
        {bf16,
         bf16,
         1,
         576,
         64,
         333,
         64,
         true,
         false,
         {428544, 429338, 666},
         {429120, 429338, 666}},
        {bf16,
         bf16,
         1,
         2560,
         64,
         640,
         0,
         true,
         true,
         {3369600, 3371648, 1280},
         {3372160, 3371648, 1280}},
        {bf16,
         f32,
         1,
         264,
         0,
         3001,
         8,
         false,
         true,
         {1588585, 1597588, 12004},
         {1588849, 1597588, 12004}},
        {bf16,
         bf16,
         1,
         7168,
         0,
         150,
         0,
         true,
         false,
         {2179072, 2179372, 300},
         {2186240, 2179372, 300}},
        {bf16,
         bf16,
         1,
         1032,
         16,
         1025,
         8,
         false,
         false,
         {2152528, 2152560, 2050},
         {2153560, 2152560, 2050}},
        // Too long for one block's registers, or its memory.
        {bf16, bf16, 1, 9000, 0, 20, 0, false, false, {396000, 396000, 40}, {405000, 396000, 40}},
        {bf16, bf16, 1, 17920, 0, 6, 0, true, false, {286720, 286732, 12}, {304640, 286732, 12}},
    };
    return kCases;
}

}  // namespace garam::testing
