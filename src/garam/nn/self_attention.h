// The attention half of a decoder block: out = x + o_proj(attention(rope(q_proj(n)), rope(k_proj(n)),
// v_proj(n))), n = rms_norm(x). Tensors [tokens, …] of the compute dtype.
#pragma once

#include "garam/nn/linear.h"
#include "garam/ops/attention.h"

namespace garam {

struct RotaryTables {
    Tensor cos;  // f32 [positions, rotary_dim / 2]
    Tensor sin;
};

struct RmsNorm {
    Tensor weight;           // [hidden]
    Tensor weight_gradient;  // f32 [hidden], or empty
    float eps = 1e-6f;
};

struct SelfAttention {
    RmsNorm norm;
    Linear q_proj;
    Linear k_proj;
    Linear v_proj;
    Linear o_proj;
    AttentionShape shape;
};

// Keys and values of the tokens seen so far of one sequence, in one layer.
struct LayerCache {
    Tensor keys;  // [capacity, num_kv_heads * head_dim]
    Tensor values;
};

// How a pass runs: which positions, which segments, whether what the backward needs is kept.
struct PassContext {
    AttentionSegments segments;
    Tensor positions;  // i32 [tokens]
    RotaryTables rotary;
    DropoutContext dropout;
    bool keep = false;              // keep activations on the arena's low end
    std::int64_t cache_length = 0;  // tokens already in the cache
};

struct SelfAttentionSaved {
    Tensor normed, rstd, q, k, v, attended, lse;
    Tensor u_q, u_k, u_v, u_o;
};

// Memory for what a forward makes: kept for the backward, or scratch of the enclosing scope.
Tensor make_activation(Stream& stream, const PassContext& pass, DType dtype, const Shape& shape);
// rms_norm of x: makes `normed`, and `rstd` where a backward follows.
void normalise(Stream& stream, const RmsNorm& norm, const PassContext& pass, const Tensor& x,
               Tensor& normed, Tensor& rstd);
// linear_forward() that makes `u` itself where a backward will need it; else u becomes empty.
void project(Stream& stream, const Linear& linear, const PassContext& pass, const Tensor& x,
             const Tensor& y, bool accumulate, Tensor& u);

// x and out must be different memory. With a cache, this pass's keys and values are appended to it and
// attention sees all of it (one sequence only).
void self_attention_forward(Stream& stream, const SelfAttention& layer, const PassContext& pass,
                            const Tensor& x, const Tensor& out, SelfAttentionSaved& saved,
                            const LayerCache* cache);

// dx holds d(out) on entry and d(x) on return. Without needs_dx only the parameters' gradients are made.
void self_attention_backward(Stream& stream, const SelfAttention& layer, const PassContext& pass,
                             const Tensor& x, const SelfAttentionSaved& saved, const Tensor& dx,
                             bool needs_dx);

}  // namespace garam
