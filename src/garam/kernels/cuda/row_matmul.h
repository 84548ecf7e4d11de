// One row against transposed rows of bf16, as decoding multiplies: c [n] = alpha * a [k] b' + addend + bias,
// b [n, k]; with the row made on the way to it (ops/row_matmul.h has the contract).
//
// Floor: b read once, at the bandwidth of the memory.
#pragma once

#include <cstdint>

#include "garam/kernels/cuda/launch.h"

namespace garam::cuda {

enum class RowInput : std::uint8_t {
    given,          // a = tail
    rms_norm,       // a = [norm of x times weight | tail]
    silu_mul,       // a = [silu(x) * up | tail]
    gelu_tanh_mul,  // likewise
};

// Of a, what is made: its first columns, before the tail.
struct MadeRow {
    std::int64_t made = 0;  // columns
    const void* x = nullptr;
    const void* weight_or_up = nullptr;
    float eps = 0;
    float weight_offset = 0;
    bool rounds_once = false;
};

struct RowMatmul : MadeRow {
    RowInput input = RowInput::given;
    std::int64_t n = 0, k = 0;
    const void* tail = nullptr;  // nullptr where made is k
    Rows b;
    const void* addend = nullptr;  // nullptr: none; of c's dtype
    const void* bias = nullptr;    // likewise
    void* c = nullptr;
    bool c_is_bf16 = false;
    bool b_is_settled = false;  // by no work that may still run when this begins; weight_or_up too
    float alpha = 1;
};

// A block has a row's elements, the sums of its rows and the copies under way in shared memory.
constexpr std::int64_t kRowThreads = 512;
constexpr std::int64_t kRowStages = 8;
constexpr std::int64_t kRowMostRows = 1024;  // of b, a block
constexpr std::int64_t kRowStep = 32 * 8;    // elements of b that a warp copies at once
constexpr std::int64_t row_matmul_shared_bytes(std::int64_t k) {
    return kRowStages * kRowThreads * 16 + (k + kRowStep - 1) / kRowStep * kRowStep * 2 +
           kRowMostRows * 4;
}
// Elements of a norm that the threads of a block hold.
constexpr std::int64_t kRowMostNormed = 2 * kRowThreads * 8;
// Whether it is of the kernel's sizes; addresses and b's pitch must be multiples of 16 bytes.
constexpr bool row_matmul_takes(RowInput input, std::int64_t made, std::int64_t k) {
    constexpr std::int64_t kMostShared = 98 << 10;
    return k > 0 && k % 8 == 0 && made % 8 == 0 && row_matmul_shared_bytes(k) <= kMostShared &&
           (input != RowInput::rms_norm || made <= kRowMostNormed);
}

struct RowMatmulKernels {
    void (*multiply)(StreamHandle stream, const RowMatmul& work);
};
const RowMatmulKernels& row_matmul_kernels();

}  // namespace garam::cuda
