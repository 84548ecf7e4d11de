#include "garam/nn/self_attention.h"

#include "garam/ops/elementwise.h"
#include "garam/ops/rms_norm.h"
#include "garam/ops/rotary.h"

namespace garam {

Tensor make_activation(Stream& stream, const PassContext& pass, DType dtype, const Shape& shape) {
    return pass.keep ? stream.arena().push(dtype, shape, Purpose::activations)
                     : stream.arena().scratch(dtype, shape);
}

void normalise(Stream& stream, const RmsNorm& norm, const PassContext& pass, const Tensor& x,
               Tensor& normed, Tensor& rstd) {
    normed = make_activation(stream, pass, x.dtype(), {x.rows(), x.columns()});
    rstd = pass.keep ? make_activation(stream, pass, DType::f32, {x.rows()}) : Tensor();
    rms_norm_forward(stream, x, norm.weight, norm.eps, normed, rstd);
}

void project(Stream& stream, const Linear& linear, const PassContext& pass, const Tensor& x,
             const Tensor& y, bool accumulate, Tensor& u) {
    u = linear.lora && pass.keep
            ? make_activation(stream, pass, x.dtype(), {x.rows(), linear.lora->A.extent(0)})
            : Tensor();
    linear_forward(stream, linear, x, y, accumulate, pass.dropout, u);
}

void self_attention_forward(Stream& stream, const SelfAttention& layer, const PassContext& pass,
                            const Tensor& x, const Tensor& out, SelfAttentionSaved& saved,
                            const LayerCache* cache) {
    const ScratchScope scope(stream.arena());
    const std::int64_t tokens = x.rows();
    const DType dtype = x.dtype();
    const auto make = [&](const Shape& shape) {
        return make_activation(stream, pass, dtype, shape);
    };

    normalise(stream, layer.norm, pass, x, saved.normed, saved.rstd);

    saved.q = make({tokens, layer.q_proj.out_features()});
    project(stream, layer.q_proj, pass, saved.normed, saved.q, false, saved.u_q);
    Tensor new_k, new_v;
    if (cache != nullptr) {
        const std::int64_t end = pass.cache_length + tokens;
        GARAM_CHECK(end <= cache->keys.rows(), "KV cache is full");
        new_k = cache->keys.slice_rows(pass.cache_length, end);
        new_v = cache->values.slice_rows(pass.cache_length, end);
        saved.k = cache->keys.slice_rows(0, end);
        saved.v = cache->values.slice_rows(0, end);
    } else {
        new_k = saved.k = make({tokens, layer.k_proj.out_features()});
        new_v = saved.v = make({tokens, layer.v_proj.out_features()});
    }
    project(stream, layer.k_proj, pass, saved.normed, new_k, false, saved.u_k);
    project(stream, layer.v_proj, pass, saved.normed, new_v, false, saved.u_v);

    rotary(stream, saved.q, layer.shape.head_dim, pass.rotary.cos, pass.rotary.sin, pass.positions,
           false);
    rotary(stream, new_k, layer.shape.head_dim, pass.rotary.cos, pass.rotary.sin, pass.positions,
           false);

    saved.attended = make({tokens, layer.o_proj.in_features()});
    saved.lse = make_activation(stream, pass, DType::f32, {tokens, layer.shape.num_heads});
    attention_forward(stream, layer.shape, pass.segments, saved.q, saved.k, saved.v, saved.attended,
                      saved.lse);

    cast(stream, x, out);
    project(stream, layer.o_proj, pass, saved.attended, out, true, saved.u_o);
}

void self_attention_backward(Stream& stream, const SelfAttention& layer, const PassContext& pass,
                             const Tensor& x, const SelfAttentionSaved& saved, const Tensor& dx,
                             bool needs_dx) {
    Arena& arena = stream.arena();
    const ScratchScope scope(arena);
    const DType dtype = x.dtype();
    const Tensor dattended = arena.scratch(dtype, saved.attended.shape());
    linear_backward(stream, layer.o_proj, saved.attended, saved.u_o, dx, dattended, false,
                    pass.dropout);
    const Tensor dq = arena.scratch(dtype, saved.q.shape());
    const Tensor dk = arena.scratch(dtype, saved.k.shape());
    const Tensor dv = arena.scratch(dtype, saved.v.shape());
    attention_backward(stream, layer.shape, pass.segments, dattended, saved.q, saved.k, saved.v,
                       saved.attended, saved.lse, dq, dk, dv);
    rotary(stream, dq, layer.shape.head_dim, pass.rotary.cos, pass.rotary.sin, pass.positions,
           true);
    rotary(stream, dk, layer.shape.head_dim, pass.rotary.cos, pass.rotary.sin, pass.positions,
           true);
    const Tensor dnormed = needs_dx || layer.norm.weight_gradient
                               ? arena.scratch(dtype, saved.normed.shape())
                               : Tensor();
    linear_backward(stream, layer.q_proj, saved.normed, saved.u_q, dq, dnormed, false,
                    pass.dropout);
    linear_backward(stream, layer.k_proj, saved.normed, saved.u_k, dk, dnormed, true, pass.dropout);
    linear_backward(stream, layer.v_proj, saved.normed, saved.u_v, dv, dnormed, true, pass.dropout);
    if (!dnormed) return;
    rms_norm_backward(stream, dnormed, x, layer.norm.weight, saved.rstd, dx, true,
                      layer.norm.weight_gradient);
}

}  // namespace garam
