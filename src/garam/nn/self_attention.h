// The attention half of a decoder block: out = x + o_proj(attention(rope(q_proj(n)), rope(k_proj(n)),
// v_proj(n))), n = rms_norm(x). Tensors [tokens, …] of the compute dtype.
#pragma once

#include "garam/nn/pass_context.h"
#include "garam/nn/projection.h"
#include "garam/ops/cached_attention.h"

namespace garam {

struct RmsNorm {
    Tensor weight;           // [hidden]
    Tensor weight_gradient;  // f32 [hidden], or empty
    float eps = 1e-6f;
};

struct SelfAttention {
    RmsNorm norm;
    Projection qkv_proj;  // parts q, k, v
    Projection o_proj;
    AttentionShape shape;
};

struct SelfAttentionSaved {
    Tensor normed, rstd, qkv, attended, lse;
    ProjectionSaved qkv_proj, o_proj;
};

// rms_norm of x, as the wide input of `next`; `rstd` where a backward follows.
void normalise(Stream& stream, const RmsNorm& norm, const PassContext& pass, const Tensor& x,
               const Projection& next, Tensor& normed, Tensor& rstd);

// What normalise() made, or the same again in scratch memory where the pass's policy dropped it.
Tensor normalise_again(Stream& stream, const RmsNorm& norm, const PassContext& pass,
                       const Tensor& x, const Projection& next, const Tensor& kept);

// x and out must be different memory. With a cache (of this layer, of one sequence; its length stands in
// pass.segments) the pass's keys and values go to its rows `pass.positions`, and attention sees the cache.
void self_attention_forward(Stream& stream, const SelfAttention& layer, const PassContext& pass,
                            const Tensor& x, const Tensor& out, SelfAttentionSaved& saved,
                            const AttentionCache* cache);

// dx, a wide output of o_proj, holds d(out) on entry and d(x) on return. Without needs_dx only the
// parameters' gradients are made.
void self_attention_backward(Stream& stream, const SelfAttention& layer, const PassContext& pass,
                             const Tensor& x, const SelfAttentionSaved& saved, const Tensor& dx,
                             bool needs_dx);

}  // namespace garam
