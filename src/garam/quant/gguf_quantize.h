// Floats to GGUF's block formats (layouts in quant/gguf_blocks.h).
//
// Q8_0: d = max|x| / 127, q = round(x / d), halves away from zero.
// Q4_0: d = x* / -8 for the x* of largest magnitude, q = min(15, floor(x / d + 8.5)).
// Both divide by the unrounded d, as ggml's quantisers do, and give their bytes.
//
// Q4_K: for each group of 32, scale s and minimum t minimise
//     E = sum_i w_i (s q_i - t - x_i)^2,  q_i = nearest code in 0 … 15,  w_i = rms(x) + |x_i|
// over candidates: for the codes that the ranges (max - min) / (15 + k/10), k = -10 … 10, give, the
// weighted least-squares solution
//     s = (W C - X L) / D,  t = (L C - Q X) / D,  D = W Q - L^2,
// W, L, Q, X, C the sums of w, w q, w q^2, w x, w x q; where t would be negative t = 0, s = C / Q.
// The best one is refined once more with its own nearest codes. s and t are then rounded to 6 bits of
// the block's largest / 63 (f16), each to the neighbour, one up or one down that gives the least E.
//
// `count` is a multiple of the block, values are finite. False where a scale is beyond f16's range;
// the blocks are then of no use.
#pragma once

#include <cstddef>
#include <cstdint>

namespace garam {

bool quantize_q8_0(const float* values, std::int64_t count, std::byte* blocks);
bool quantize_q4_0(const float* values, std::int64_t count, std::byte* blocks);
bool quantize_q4_k(const float* values, std::int64_t count, std::byte* blocks);

}  // namespace garam
