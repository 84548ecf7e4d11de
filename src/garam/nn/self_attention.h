// The attention half of a decoder block: out = x + o_proj(attention(rope(q_proj(n)), rope(k_proj(n)),
// v_proj(n))), n = rms_norm(x). Where a model has them, q and k are normalised before they are turned, and
// nn/branch.h says what else may stand at the ends. Tensors [tokens, …] of the compute dtype.
#pragma once

#include <vector>

#include "garam/nn/branch.h"
#include "garam/ops/cached_attention.h"

namespace garam {

struct SelfAttention {
    RmsNorm norm;
    Projection qkv_proj;  // parts q, k, v, or one with the rows of all
    RmsNorm q_norm;       // of heads or of all columns
    RmsNorm k_norm;
    Projection o_proj;
    BranchEnd end;
    AttentionShape shape;
    RotaryTables rotary;  // empty: q and k are not turned
};

struct SelfAttentionSaved {
    // Of each tile of tokens, the input of qkv_proj and what else its backward needs.
    struct Tile {
        Tensor normed, rstd;
        ProjectionSaved qkv_proj;
    };
    std::vector<Tile> tiles;
    Tensor qkv, attended, lse;
    Tensor unnormed, q_rstd, k_rstd;  // of q and k beside each other, before their norms
    ProjectionSaved o_proj;
    BranchEndSaved end;
};

// x and out must be different memory. With a cache (of this layer, of one sequence; its length stands in
// pass.segments) the pass's keys and values go to its rows `pass.positions`, and attention sees the cache.
void self_attention_forward(Stream& stream, const SelfAttention& layer, const PassContext& pass,
                            const Tensor& x, const Tensor& out, SelfAttentionSaved& saved,
                            const AttentionCache* cache);

// dx, a wide output of o_proj, holds d(out) on entry and d(x) on return. Without needs_dx only the
// parameters' gradients are made. In tiles it overwrites saved.qkv and saved.attended.
void self_attention_backward(Stream& stream, const SelfAttention& layer, const PassContext& pass,
                             const Tensor& x, const SelfAttentionSaved& saved, const Tensor& dx,
                             bool needs_dx);

}  // namespace garam
