// Copies, casts and sums over whole tensors. Shapes of all operands agree; rows may have a pitch.
//
// Cost: the arithmetic named (sums of squares 2 an element), every operand moved once; of gathered
// and scattered rows only those touched, and all of a scattered output.
#pragma once

#include <span>

#include "garam/runtime/stream.h"

namespace garam {

// out = x, between any two of f32, f16, bf16 (round to nearest even), or a plain copy of equal
// dtypes.
void cast(Stream& stream, const Tensor& x, const Tensor& out);

// out = x * factor, then rounded to out's dtype; from f32 to f32 or bf16, or from bf16 to bf16. x and
// out may be the same memory where the dtypes agree.
void scale(Stream& stream, const Tensor& x, float factor, const Tensor& out);

// out = a + b, one dtype (f32 or bf16); out may be a or b.
void add(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& out);

// Many small tensors at once: to = from * factor, then rounded; `from` dense f32, `to` f32 or bf16
// of its rows and columns, which may have a pitch. On a card one launch takes as many as its
// arguments hold.
struct CastItem {
    Tensor from;
    Tensor to;
    float factor = 1;
};
void cast_many(Stream& stream, std::span<const CastItem> items);

// out = value (f32 or bf16).
void fill(Stream& stream, float value, const Tensor& out);

// In the three ops below -1 stands for no row, so that a list of a fixed length may name fewer
// rows. Any other number out of range is a Bug where the host can see it; a card takes it for -1,
// and gathers NaN.

// out[i] = x[rows[i]] for i32 rows [count], zeros for -1; x [*, columns], out [count, columns], one
// dtype.
void gather_rows(Stream& stream, const Tensor& x, const Tensor& rows, const Tensor& out);

// out[rows[i]] = x[i], all other rows of out zero. `rows` i32, ascending and distinct, any -1 at
// the end.
void scatter_rows(Stream& stream, const Tensor& x, const Tensor& rows, const Tensor& out);

// out[rows[i]] = x[i]; other rows stay. `rows` i32, distinct but for -1. (Appends to a cache.)
void store_rows(Stream& stream, const Tensor& x, const Tensor& rows, const Tensor& out);

// Adds sum over all elements of x (f32) into result f32 [1] - in double precision inside, pieces
// added in a fixed order whatever the number of threads.
void add_sum(Stream& stream, const Tensor& x, const Tensor& result);

// The same for the sum of squares.
void add_sum_of_squares(Stream& stream, const Tensor& x, const Tensor& result);

}  // namespace garam
