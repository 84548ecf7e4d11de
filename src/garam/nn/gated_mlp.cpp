#include "garam/nn/gated_mlp.h"

#include "garam/ops/elementwise.h"
#include "garam/ops/rms_norm.h"
#include "garam/ops/silu_mul.h"

namespace garam {

void gated_mlp_forward(Stream& stream, const GatedMlp& layer, const PassContext& pass,
                       const Tensor& x, const Tensor& out, GatedMlpSaved& saved) {
    const ScratchScope scope(stream.arena());
    const std::int64_t tokens = x.rows();
    const DType dtype = x.dtype();
    const auto make = [&](const Shape& shape) {
        return make_activation(stream, pass, dtype, shape);
    };
    normalise(stream, layer.norm, pass, x, saved.normed, saved.rstd);

    const Shape wide{tokens, layer.gate_proj.out_features()};
    saved.gate = make(wide);
    project(stream, layer.gate_proj, pass, saved.normed, saved.gate, false, saved.u_gate);
    saved.up = make(wide);
    project(stream, layer.up_proj, pass, saved.normed, saved.up, false, saved.u_up);
    saved.product = make(wide);
    silu_mul_forward(stream, saved.gate, saved.up, saved.product);

    cast(stream, x, out);
    project(stream, layer.down_proj, pass, saved.product, out, true, saved.u_down);
}

void gated_mlp_backward(Stream& stream, const GatedMlp& layer, const PassContext& pass,
                        const Tensor& x, const GatedMlpSaved& saved, const Tensor& dx) {
    Arena& arena = stream.arena();
    const ScratchScope scope(arena);
    const DType dtype = x.dtype();
    const Tensor dproduct = arena.scratch(dtype, saved.product.shape());
    linear_backward(stream, layer.down_proj, saved.product, saved.u_down, dx, dproduct, false,
                    pass.dropout);
    silu_mul_backward(stream, dproduct, saved.gate, saved.up, saved.gate, saved.up);
    const Tensor dnormed = arena.scratch(dtype, saved.normed.shape());
    linear_backward(stream, layer.gate_proj, saved.normed, saved.u_gate, saved.gate, dnormed, false,
                    pass.dropout);
    linear_backward(stream, layer.up_proj, saved.normed, saved.u_up, saved.up, dnormed, true,
                    pass.dropout);
    rms_norm_backward(stream, dnormed, x, layer.norm.weight, saved.rstd, dx, true,
                      layer.norm.weight_gradient);
}

}  // namespace garam
