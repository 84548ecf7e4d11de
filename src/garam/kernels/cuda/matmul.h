// Matrix products on a card: cuBLASLt, kernels of our own for few rows (gemv.cu), and a plain kernel for
// the rest (no terms at all; operands for which the library has no algorithm).
#pragma once

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "garam/core/product_table.h"
#include "garam/kernels/cuda/launch.h"

namespace garam::cuda {

// Scratch of every product that has terms: what the library may use, as the plan counts it.
constexpr std::int64_t kMatmulWorkspace = std::int64_t{32} << 20;

// c = alpha * op(a) * op(b) + addend + bias, see ops/matmul.h. None of the extents m and n is 0.
struct MatmulArguments {
    std::int64_t m = 0, n = 0, k = 0;
    Rows a, b, c;
    Rows addend;                 // no data: none; c itself: accumulate
    const void* bias = nullptr;  // nullptr: none
    bool transpose_a = false, transpose_b = false;
    bool inputs_are_bf16 = false, c_is_bf16 = false;
    bool b_is_settled = false;  // by no work that may still run when this begins
    bool tf32 = false;          // f32 operands may be multiplied in tf32
    float alpha = 1;
    int ordinal = 0;  // of the card
    void* workspace = nullptr;
    const ProductAlgorithm* algorithm = nullptr;  // of the library; nullptr: its heuristic chooses
};

// The largest power of two, up to 256, that divides an address.
inline std::int64_t alignment_of(const void* pointer) {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    return std::int64_t{1} << std::min(std::countr_zero(address | 256), 8);
}

// What a choice of the algorithm depends on; no tail.
inline ProductShape product_shape(const MatmulArguments& x) {
    ProductShape shape;
    shape.m = x.m;
    shape.n = x.n;
    shape.k = x.k;
    shape.a_pitch = x.a.pitch;
    shape.b_pitch = x.b.pitch;
    shape.c_pitch = x.c.pitch;
    shape.transpose_a = x.transpose_a;
    shape.transpose_b = x.transpose_b;
    shape.inputs_are_bf16 = x.inputs_are_bf16;
    shape.c_is_bf16 = x.c_is_bf16;
    shape.tf32 = x.tf32 && !x.inputs_are_bf16;
    shape.bias = x.bias != nullptr;
    shape.a_alignment = alignment_of(x.a.data);
    shape.b_alignment = alignment_of(x.b.data);
    shape.c_alignment = alignment_of(x.c.data);
    if (shape.bias) shape.c_alignment = std::min(shape.c_alignment, alignment_of(x.bias));
    shape.addend_alignment = shape.c_alignment;
    if (x.addend.data == nullptr) return shape;
    shape.addend = x.addend.data == x.c.data ? ProductAddend::in_place : ProductAddend::separate;
    shape.addend_pitch = x.addend.pitch;
    if (shape.addend == ProductAddend::separate)
        shape.addend_alignment = alignment_of(x.addend.data);
    return shape;
}

// The product without the last `tail` terms of its sums, and the one that adds those.
inline std::pair<MatmulArguments, MatmulArguments> split_at_tail(const MatmulArguments& x,
                                                                 std::int64_t tail) {
    MatmulArguments main = x;
    main.k -= tail;
    MatmulArguments last = x;
    last.k = tail;
    const std::int64_t bytes = main.k * (x.inputs_are_bf16 ? 2 : 4);
    last.a.data = static_cast<char*>(x.a.data) + bytes * (x.transpose_a ? x.a.pitch : 1);
    last.b.data = static_cast<char*>(x.b.data) + bytes * (x.transpose_b ? 1 : x.b.pitch);
    last.bias = nullptr;
    last.addend = x.c;
    return {main, last};
}

struct MatmulKernels {
    void (*multiply)(StreamHandle stream, const MatmulArguments& arguments);
    // The library's, of which algorithms are.
    std::int64_t (*library_version)();
    // Up to `most` that the library's heuristic proposes for a shape on a card, its first choice first,
    // all deterministic and within the workspace.
    std::vector<ProductAlgorithm> (*candidates)(int ordinal, const ProductShape& shape, int most);
    // Whether the algorithm multiplies that shape on that card, within the workspace.
    bool (*accepts)(int ordinal, const ProductShape& shape, const ProductAlgorithm& algorithm);
};
const MatmulKernels& matmul_kernels();

// The pieces of multiply().
constexpr int kMostGemvRows = 4;
bool gemv(StreamHandle stream, const MatmulArguments& arguments);  // false: not of its shapes
void plain_matmul(StreamHandle stream, const MatmulArguments& arguments);

}  // namespace garam::cuda
