// Rotary position embedding (Su et al., 2021), half-rotation layout as in Hugging Face's weights:
// the pair (i, i + rotary_dim / 2) of each head is turned by the angle position * inv_freq[i].
//
// x [tokens, num_heads * head_dim] (f32 or bf16; may be a column slice with a pitch), in place. The
// first rotary_dim entries of each head turn, the others stay; tables without columns turn nothing.
// cos, sin f32 [positions, rotary_dim / 2] (tables of models/rope.h, any scaling folded in); positions
// i32 [tokens], each below the tables' rows (another is a Bug on the CPU, and gives NaN on a card).
// `inverse` turns by the negative angle: the backward pass, and the way back where the tables hold true
// cosines and sines (not times a factor, as yarn's).
//
// Cost: 6 flops a pair; the turned entries read and written, and a row of each table read for each
// token.
#pragma once

#include "garam/runtime/stream.h"

namespace garam {

void rotary(Stream& stream, const Tensor& x, std::int64_t head_dim, const Tensor& cos,
            const Tensor& sin, const Tensor& positions, bool inverse);

}  // namespace garam
