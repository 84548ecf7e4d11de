// A linear layer, y = x Wᵀ + b, with or without a LoRA adapter (Hu et al., 2021):
//
//   y = x Wᵀ + b + s * dropout(x) Aᵀ Bᵀ
//
// or a weight-decomposed one, whose columns are scaled (ops/dora.h).
//
// x [tokens, in], y [tokens, out], W [out, in], b [out], A [r, in], B [out, r], all of the compute dtype;
// gradients f32. W may be quantised instead: products then decode it on the way (ops/quantized_matmul.h).
// The layer does not own memory: weights, parameters and gradients belong to the model.
#pragma once

#include <optional>

#include "garam/ops/dropout.h"
#include "garam/quant/quantized_matrix.h"
#include "garam/runtime/stream.h"

namespace garam {

struct LoraAdapter {
    Tensor A;           // [r, in], compute dtype
    Tensor B;           // [out, r]
    Tensor A_gradient;  // f32 [r, in]
    Tensor B_gradient;  // f32 [out, r]
    float scaling = 1;
    float dropout = 0;
    std::uint32_t module = 0;  // number of the place in the model, keys the dropout mask

    // DoRA's; empty: plain LoRA.
    Tensor dora_scale;          // f32 [out]
    Tensor dora_norm;           // f32 [out]
    Tensor magnitude;           // f32 [out], the master
    Tensor magnitude_gradient;  // f32 [out]
    bool is_dora() const { return static_cast<bool>(dora_scale); }
};

// What a linear's forward leaves for its backward; empty Tensors where there is no adapter or no backward follows.
struct LinearSaved {
    Tensor u;  // [tokens, r]: dropout(x) Aᵀ
    Tensor z;  // [tokens, out]: with DoRA dropout(x) (W + s B A)ᵀ
};

struct Linear {
    Tensor weight;              // [out, in]; empty: products read `quantized`
    QuantizedMatrix quantized;  // what the weight is decoded from, or empty
    Tensor bias;                // [out], or empty
    Tensor weight_gradient;     // f32 [out, in], or empty: the weight is frozen
    Tensor bias_gradient;       // f32 [out], or empty
    std::optional<LoraAdapter> lora;

    std::int64_t in_features() const { return weight ? weight.extent(1) : quantized.columns; }
    std::int64_t out_features() const { return weight ? weight.extent(0) : quantized.rows; }
};

// What dropout needs to know of the micro-batch; `training` false switches it off.
struct DropoutContext {
    bool training = false;
    std::uint64_t seed = 0;
    Tensor step;       // i32 [1]: optimiser steps done
    Tensor positions;  // i32 [tokens]
    Tensor samples;    // i64 [tokens]
};

// `accumulate` adds to y (a residual stream) instead of writing it. Fills the tensors of `saved`.
void linear_forward(Stream& stream, const Linear& linear, const Tensor& x, const Tensor& y,
                    bool accumulate, const DropoutContext& dropout, const LinearSaved& saved);

// Fills `saved` alone: the forward without what no backward reads.
void linear_prepare(Stream& stream, const Linear& linear, const Tensor& x,
                    const DropoutContext& dropout, const LinearSaved& saved);

// Adds to the gradients of whatever is trained, and writes (or adds to, with accumulate_dx) dx, unless
// dx is empty. x and saved as in the forward. Nothing but the adapter is trained beside DoRA.
void linear_backward(Stream& stream, const Linear& linear, const Tensor& x,
                     const LinearSaved& saved, const Tensor& dy, const Tensor& dx,
                     bool accumulate_dx, const DropoutContext& dropout);

}  // namespace garam
