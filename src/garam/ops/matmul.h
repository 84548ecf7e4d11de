// Matrix product: c = alpha * op(a) * op(b) + (accumulate ? c : 0) + addend + bias, op(x) = x or its
// transpose. `addend` [m, n] and `bias` [n] (empty: none) have c's dtype; `addend` excludes accumulate and
// may be c's own memory.
//
// op(a) [m, k], op(b) [k, n], c [m, n]; a and b of one dtype (f32 or bf16), c f32 or bf16 (with f32
// inputs, f32); rows may have a pitch; c overlaps neither. m, n or k of 0 is allowed.
//
// Sums in fp32, rounded once into c (on the CPU a bias is added to the rounded value). On the CPU
// the order in which an element is summed depends on k only: its bits are the same however rows or
// columns are cut into calls, whatever else is in the call (one row is decoded as it was in the
// prompt), and for any number of threads. They do depend on the instruction set of the device's
// profile. Where that multiplies bf16 itself, in pairs or in tiles, subnormals count as zero. On a
// card the same call gives the same bits again; another number of rows may be summed in another
// order, and a bf16 product may be rounded before c or the addend is added.
//
// Cost: 2 flops for each multiply-add, 1 an element for the bias; every operand moved once.
//
// Scratch: on the CPU a bounded amount for each thread of the profile, which grows with m, n and k; on a
// card a constant (kernels/cuda/matmul.h) wherever there is something to sum.
#pragma once

#include "garam/runtime/stream.h"

namespace garam {

struct MatmulOptions {
    bool transpose_a = false;
    bool transpose_b = false;
    float alpha = 1;
    bool accumulate = false;
    // b was written long before (a weight): with few rows a card then begins to read it while the work
    // ahead still runs.
    bool b_is_settled = false;
    // The last so many terms of the sums are an adapter's: a card adds them by a second product, rounding
    // c in between, where its table of tuned products says that this is faster.
    std::int64_t tail = 0;
    Tensor addend = {};
    Tensor bias = {};
};

void matmul(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& c,
            const MatmulOptions& options = {});

}  // namespace garam
