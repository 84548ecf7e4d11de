// The CPU's leaf functions, one table for each instruction set.
//
// Every kernel source is compiled once for each set into namespace garam::cpu::<set> and gives its
// functions to one KernelTable; ops choose the table by the device's profile. Kernels know
// pointers, counts and plain structs: shapes, checks, threads and memory are the ops' business, so
// a kernel never allocates, and any number of threads may be in it at once.
//
// Sources of kernels include nothing but this header (with enumerations and plain tables; they call none of the functions
// beside these) and simd.h: an inline function or template of another header, compiled here for AVX-512 and merged by the
// linker with its twin from a plain source, would end the program on a lesser processor.
#pragma once

#include <cstdint>

#include "garam/core/activation.h"
#include "garam/core/dynamic_code.h"
#include "garam/core/quant_format.h"

namespace garam::cpu {

// Rows of a matrix: first element, and elements from one row to the next.
struct Rows {
    void* data = nullptr;
    std::int64_t pitch = 0;
};

// What a norm multiplies by: offset + data[i].
struct NormWeight {
    const void* data;
    float offset;
    bool rounds_once;  // else the normed value is rounded to the element type before the product
};

// Logits count as logit * factor, and under a soft cap (0: none) as softcap * tanh of that / softcap.
struct LogitScale {
    float factor;
    float softcap;
};

struct AdamWStep {
    float decay;  // 1 - learning_rate * weight_decay
    float beta1, beta2;
    float one_minus_beta1, one_minus_beta2;
    float step_size;        // learning_rate / (1 - beta1^t)
    float root_correction;  // sqrt(1 - beta2^t)
    float epsilon;
    float gradient_scale;
};

// The update of ops/adamw_8bit.h.
struct AdamW8bitStep {
    float decay;  // 1 - learning_rate * weight_decay
    float beta1, beta2;
    float one_minus_beta1, one_minus_beta2;
    float step_size;  // -learning_rate * sqrt(1 - beta2^t) / (1 - beta1^t)
    float epsilon;    // times sqrt(1 - beta2^t)
    float gradient_scale;
};

struct SgdStep {
    float learning_rate, momentum, one_minus_dampening, weight_decay, gradient_scale;
    bool nesterov, first;
};

// One row of dropout: which words of the generator mask it (ops/dropout.h).
struct DropoutRow {
    std::uint32_t position, sample_low, sample_high_xor_step;
    std::uint64_t key;
    std::uint32_t threshold;  // kept when its 16 bits >= threshold
    float factor;             // of what is kept
};

// Sizes of the tiles that attention works in.
constexpr std::int64_t kAttentionBlock = 64;

// A block of at most kAttentionBlock queries of the `heads` query heads that share one key/value
// head. Pointers are at the first row (of the block for q, out, lse; of the segment for k, v) and
// at the first column of the first head. Query i of the block sees keys 0 … visible + i - 1, of these
// the last `window`. softcap 0: none.
struct AttentionForward {
    Rows q, k, v, out;
    float* lse;
    std::int64_t lse_pitch;
    std::int64_t queries, heads, head_dim;
    std::int64_t visible, window;
    float scale, softcap;
};

// All of one segment for the `heads` query heads that share one key/value head. delta f32 [length,
// heads] = row sums of dout * out. dq is f32 whatever the element type.
struct AttentionBackward {
    Rows q, k, v, dout, dk, dv;
    const float* lse;
    const float* delta;
    std::int64_t lse_pitch;  // of lse and delta
    float* dq;
    std::int64_t dq_pitch;
    std::int64_t length, heads, head_dim;
    std::int64_t window;
    float scale, softcap;
};

// A quantised matrix (quant/quantized_matrix.h), its elements numbered row after row.
struct CodedMatrix {
    QuantFormat format;
    const void* codes;
    // Of nf4 and fp4.
    const float* table;          // 16 values
    int block_shift;             // log2 of the elements of a block, 5 or more
    int nested_shift;            // log2 of the blocks of a nested block
    const void* absmax;          // f32, u8 with double quantisation
    const float* nested_absmax;  // nullptr: not double
    const float* map;            // 256 values
    float offset;
};
// Elements [first, first + count) as f32 or bf16. Those `ahead` further on, which may be none, are fetched.
using DecodeFunction = void (*)(const CodedMatrix& matrix, std::int64_t first, std::int64_t count,
                                std::int64_t ahead, void* out);

// A block of c [m, n] = alpha * op(a) * op(b) (+ c when `accumulate`), m, n, k >= 1. `transpose_a`:
// a lies [k, m]; `transpose_b`: b lies [n, k]; `transpose_c`: c lies [n, m] and is fp32.
//
// With a `coded` b its values are decoded where they are packed: b.pitch is the row length of that matrix, b's first
// element its element `first_coded`, and `decode` gives a's type.
struct MatmulBlock {
    Rows a, b, c;
    std::int64_t m, n, k;
    bool transpose_a, transpose_b, transpose_c;
    bool c_is_bf16;
    bool accumulate;
    float alpha;
    const CodedMatrix* coded;  // nullptr: none
    std::int64_t first_coded;
    DecodeFunction decode;
};

// How large the blocks of a kernel may be and what they cost, which decides about speed only. More columns
// are fewer readings of a, more rows fewer packings of b; packed b and a block's sums share a core's
// second-level cache. Costs are for a step of k, in what the products of one row and one panel take:
// packing a panel of b; reading a row of a from a cache, or from memory where it is larger than those.
struct MatmulCut {
    std::int64_t most_rows, most_columns, most_elements;
    double panel_ticks, row_ticks, far_row_ticks;
};

// The order in which an element is summed depends on k only. Blocks whose columns begin at multiples
// of kMatmulPanel waste no work.
struct MatmulKernel {
    void (*block)(const MatmulBlock& block, void* scratch);  // scratch aligned to 64
    // Bytes for any block of at most these extents and elements of c, counting each of its rows as a
    // multiple of kMatmulPanel; grows with each.
    std::int64_t (*scratch_bytes)(std::int64_t m, std::int64_t n, std::int64_t elements,
                                  std::int64_t k);
    std::int64_t coded_bytes;  // more, with a coded b; a multiple of 64
    MatmulCut cut;
};
constexpr std::int64_t kMatmulPanel = 32;

// `scratch` holds so many floats as the sizes say, aligned to 64 bytes.
struct AttentionKernels {
    void (*forward)(const AttentionForward& block, float* scratch);
    void (*backward)(const AttentionBackward& segment, float* scratch);
    std::int64_t (*forward_scratch)(std::int64_t heads, std::int64_t head_dim);
    std::int64_t (*backward_scratch)(std::int64_t head_dim);
};

// Functions for one element type; void* are elements of it, `n` counts elements of a contiguous
// run.
struct ElementKernels {
    // Memory-bound runs: floor = bytes of all operands / bandwidth.
    void (*from_f32)(const float* x, void* out, std::int64_t n);
    void (*from_bf16)(const std::uint16_t* x, void* out, std::int64_t n);
    void (*from_f16)(const std::uint16_t* x, void* out, std::int64_t n);
    void (*scale)(const float* x, float factor, void* out, std::int64_t n);
    void (*multiply)(const void* x, float factor, void* out, std::int64_t n);  // out = x * factor
    void (*add)(const void* a, const void* b, void* out, std::int64_t n);
    void (*fill)(float value, void* out, std::int64_t n);
    void (*add_to_f32)(const void* x, float* sum, std::int64_t n);  // sum += x
    void (*add_product_to_f32)(const void* x, float factor, float* sum,
                               std::int64_t n);  // sum += x * factor

    void (*gated_activation)(Activation activation, const void* gate, const void* up, void* out,
                             std::int64_t n);
    void (*gated_activation_backward)(Activation activation, const void* dout, const void* gate,
                                      const void* up, void* dgate, void* dup, std::int64_t n);

    // Rows of `hidden`; rstd may be null.
    void (*rms_norm)(Rows x, NormWeight weight, float eps, Rows y, float* rstd, std::int64_t rows,
                     std::int64_t hidden);
    // weight_gradient (f32 [hidden], may be null) += this block's part. dx may be dy's memory.
    void (*rms_norm_backward)(Rows dy, Rows x, NormWeight weight, const float* rstd, Rows dx,
                              bool accumulate, float* weight_gradient, std::int64_t rows,
                              std::int64_t hidden);

    // One token's heads; cos and sin of its position, [half].
    void (*rotary)(void* x, std::int64_t heads, std::int64_t head_dim, const float* cos,
                   const float* sin, std::int64_t half, bool inverse);

    // out = x * (factors + offset) + bias + addend; both may be null, out may be x or addend.
    void (*scale_columns)(const void* x, const float* factors, float offset, const void* bias,
                          const void* addend, void* out, std::int64_t n);
    // dz = dy * scale, sums += dy * z; dz may be dy or z.
    void (*dora_backward)(const void* dy, const void* z, const float* scale, void* dz, float* sums,
                          std::int64_t n);

    void (*dropout)(const DropoutRow& row, const void* x, void* y, std::int64_t n, bool accumulate);

    void (*scale_logits)(void* logits, LogitScale scale, std::int64_t n);
    // One row of logits; returns the loss. `gradient` (null: none) takes softmax - target distribution, through the
    // scale, in the logits' type or, for f32 logits, as bf16 by the second function; it may be the logits themselves,
    // which are lost. `smoothing` of the target distribution is uniform, the rest one hot.
    float (*cross_entropy)(void* logits, LogitScale scale, float smoothing, void* gradient,
                           std::int64_t vocab, std::int64_t target);
    float (*cross_entropy_to_bf16)(void* logits, LogitScale scale, float smoothing, void* gradient,
                                   std::int64_t vocab, std::int64_t target);  // f32 only

    void (*attention_delta)(const void* dout, const void* out, std::int64_t heads,
                            std::int64_t head_dim, float* delta);
    AttentionKernels attention;

    DecodeFunction decode;
    MatmulKernel matmul;
};

struct KernelTable {
    ElementKernels f32;
    ElementKernels bf16;

    double (*sum)(const float* x, std::int64_t n);
    double (*sum_of_squares)(const float* x, std::int64_t n);
    void (*adamw)(const AdamWStep& step, float* weight, const float* gradient, float* m, float* v,
                  std::int64_t n);
    // Whole blocks of 256 but for the last one; absmax: one a block.
    void (*adamw_8bit)(const AdamW8bitStep& step, const DynamicCode& m_code,
                       const DynamicCode& v_code, float* weight, const float* gradient,
                       std::uint8_t* m_codes, std::uint8_t* v_codes, float* m_absmax,
                       float* v_absmax, std::int64_t n);
    void (*sgd)(const SgdStep& step, float* weight, const float* gradient, float* buffer,
                std::int64_t n);
};

// The vector width that attention pads its tiles to.
constexpr std::int64_t kGemmColumns = 16;

// On processors that do not know a set these give the widest table that exists for them.
const KernelTable& generic_kernels();
const KernelTable& avx2_kernels();
const KernelTable& avx512_kernels();
// For bf16 operands, on processors that multiply it faster than fp32 (DeviceProfile::fast_bf16).
const MatmulKernel& fast_bf16_matmul();
// … and in tiles (DeviceProfile::bf16_tiles).
const MatmulKernel& tiled_bf16_matmul();
const AttentionKernels& tiled_bf16_attention();

}  // namespace garam::cpu
