#include "garam/nn/self_attention.h"

#include "garam/ops/rms_norm.h"
#include "garam/ops/rotary.h"

namespace garam {
namespace {

// The columns of q, k and v in the output of qkv_proj, or in its gradient.
struct Heads {
    Tensor q, k, v;
};
Heads heads_of(const SelfAttention& layer, const Tensor& qkv) {
    const std::int64_t k = layer.qkv_proj.column(1);
    const std::int64_t v = layer.qkv_proj.column(2);
    return {qkv.slice_columns(0, k), qkv.slice_columns(k, v),
            qkv.slice_columns(v, layer.qkv_proj.out_features())};
}

// Their heads lie beside each other: one call.
void turn_q_and_k(Stream& stream, const SelfAttention& layer, const PassContext& pass,
                  const Tensor& qkv, bool inverse) {
    rotary(stream, qkv.slice_columns(0, layer.qkv_proj.column(2)), layer.shape.head_dim,
           pass.rotary.cos, pass.rotary.sin, pass.positions, inverse);
}

}  // namespace

const char* name_of(Recompute recompute) {
    switch (recompute) {
        case Recompute::nothing:
            return "none";
        case Recompute::norms_and_activation:
            return "norms+activation";
        case Recompute::gate_up:
            return "gate_up";
        case Recompute::block:
            return "block";
        case Recompute::offload:
            return "offload";
    }
    return "?";
}

Tensor make_activation(Stream& stream, const PassContext& pass, DType dtype, const Shape& shape,
                       Recompute dropped_from) {
    return pass.keeps(dropped_from) ? stream.arena().push(dtype, shape, Purpose::activations)
                                    : stream.arena().scratch(dtype, shape);
}

void normalise(Stream& stream, const RmsNorm& norm, const PassContext& pass, const Tensor& x,
               const Projection& next, Tensor& normed, Tensor& rstd) {
    normed = projection_input(stream, pass, x.dtype(), x.rows(), next);
    rstd = pass.keep ? make_activation(stream, pass, DType::f32, {x.rows()}) : Tensor();
    rms_norm_forward(stream, x, norm.weight, norm.eps, features(normed, x.columns()), rstd);
}

Tensor normalise_again(Stream& stream, const RmsNorm& norm, const PassContext& pass,
                       const Tensor& x, const Projection& next, const Tensor& kept) {
    if (pass.recompute < Recompute::norms_and_activation) return kept;
    const Tensor normed =
        stream.arena().scratch(x.dtype(), {x.rows(), next.in_features() + next.tail});
    rms_norm_forward(stream, x, norm.weight, norm.eps, features(normed, x.columns()), {});
    return normed;
}

void self_attention_forward(Stream& stream, const SelfAttention& layer, const PassContext& pass,
                            const Tensor& x, const Tensor& out, SelfAttentionSaved& saved,
                            const AttentionCache* cache) {
    const ScratchScope scope(stream.arena());
    const std::int64_t tokens = x.rows();
    const DType dtype = x.dtype();

    if (projects_one_row(layer.qkv_proj, pass, x)) {
        saved.qkv = make_activation(stream, pass, dtype, {tokens, layer.qkv_proj.out_features()});
        project_norm(stream, layer.qkv_proj, x, layer.norm.weight, layer.norm.eps, saved.qkv);
    } else {
        normalise(stream, layer.norm, pass, x, layer.qkv_proj, saved.normed, saved.rstd);
        saved.qkv = make_activation(stream, pass, dtype, {tokens, layer.qkv_proj.out_features()});
        projection_forward(stream, layer.qkv_proj, pass, saved.normed, saved.qkv, {},
                           saved.qkv_proj);
    }

    saved.attended = make_activation(stream, pass, dtype,
                                     {tokens, layer.o_proj.in_features() + layer.o_proj.tail});
    const Tensor attended = features(saved.attended, layer.o_proj.in_features());
    if (cache != nullptr) {
        cached_attention(stream, layer.shape, pass.segments, saved.qkv, pass.rotary.cos,
                         pass.rotary.sin, pass.positions, *cache, attended);
    } else {
        turn_q_and_k(stream, layer, pass, saved.qkv, false);
        const Heads heads = heads_of(layer, saved.qkv);
        saved.lse = make_activation(stream, pass, DType::f32, {tokens, layer.shape.num_heads});
        attention_forward(stream, layer.shape, pass.segments, heads.q, heads.k, heads.v, attended,
                          saved.lse);
    }
    projection_forward(stream, layer.o_proj, pass, saved.attended, out, x, saved.o_proj);
}

void self_attention_backward(Stream& stream, const SelfAttention& layer, const PassContext& pass,
                             const Tensor& x, const SelfAttentionSaved& saved, const Tensor& dx,
                             bool needs_dx) {
    Arena& arena = stream.arena();
    const ScratchScope scope(arena);
    const DType dtype = x.dtype();
    const std::int64_t tokens = x.rows();
    const Projection& qkv_proj = layer.qkv_proj;
    const std::int64_t width = layer.o_proj.in_features();
    const Tensor dattended = arena.scratch(dtype, {tokens, width});
    projection_backward(stream, layer.o_proj, pass, saved.attended, saved.o_proj,
                        features(dx, x.columns() + layer.o_proj.tail), dattended);

    const Tensor dqkv = arena.scratch(dtype, {tokens, qkv_proj.out_features() + qkv_proj.tail});
    const Heads heads = heads_of(layer, saved.qkv);
    const Heads gradients = heads_of(layer, dqkv);
    attention_backward(stream, layer.shape, pass.segments, dattended, heads.q, heads.k, heads.v,
                       features(saved.attended, width), saved.lse, gradients.q, gradients.k,
                       gradients.v);
    turn_q_and_k(stream, layer, pass, dqkv, true);
    const Tensor dnormed = needs_dx || layer.norm.weight_gradient
                               ? arena.scratch(dtype, {tokens, x.columns()})
                               : Tensor();
    const Tensor normed = normalise_again(stream, layer.norm, pass, x, qkv_proj, saved.normed);
    if (pass.recompute >= Recompute::norms_and_activation)
        projection_refill(stream, qkv_proj, pass, normed, saved.qkv_proj);
    projection_backward(stream, qkv_proj, pass, normed, saved.qkv_proj, dqkv, dnormed);
    if (!dnormed) return;
    rms_norm_backward(stream, dnormed, x, layer.norm.weight, saved.rstd, features(dx, x.columns()),
                      true, layer.norm.weight_gradient);
}

}  // namespace garam
