#include "garam/nn/gated_mlp.h"

#include "garam/core/error.h"
#include "garam/ops/gated_activation.h"

namespace garam {
namespace {

// The input of down_proj, and what stands before it.
void make_product(Stream& stream, const GatedMlp& layer, const PassContext& pass, const Tensor& x,
                  GatedMlpSaved& saved) {
    const std::int64_t tokens = x.rows();
    const std::int64_t wide = layer.down_proj.in_features();
    begin_branch(stream, layer.norm, pass, x, layer.gate_up_proj, saved.normed, saved.rstd);
    saved.gate_up = projection_output(stream, pass, x.dtype(), tokens, layer.gate_up_proj);
    projection_forward(stream, layer.gate_up_proj, pass, saved.normed,
                       features(saved.gate_up, 2 * wide), {}, saved.gate_up_proj);
    saved.product = projection_input(stream, pass, x.dtype(), tokens, layer.down_proj);
    gated_activation_forward(stream, layer.activation, saved.gate_up.slice_columns(0, wide),
                             saved.gate_up.slice_columns(wide, 2 * wide),
                             features(saved.product, wide));
}

}  // namespace

void gated_mlp_forward(Stream& stream, const GatedMlp& layer, const PassContext& pass,
                       const Tensor& x, const Tensor& out, GatedMlpSaved& saved) {
    const ScratchScope scope(stream.arena());
    const std::int64_t tokens = x.rows();
    const DType dtype = x.dtype();
    const Projection& gate_up_proj = layer.gate_up_proj;
    const std::int64_t wide = layer.down_proj.in_features();
    if (pass.tile > 0) {
        GARAM_CHECK(!pass.keep, "an MLP in tiles keeps nothing");
        for_tiles(pass, tokens, [&](std::int64_t begin, std::int64_t end) {
            gated_mlp_forward(stream, layer, tokens_of(pass, begin, end), x.slice_rows(begin, end),
                              out.slice_rows(begin, end), saved);
        });
        return;
    }
    if (layer.norm && projects_one_row(gate_up_proj, pass, x) &&
        projects_one_row(layer.down_proj, pass, x)) {
        const Tensor gate_up = make_activation(stream, pass, dtype, {tokens, 2 * wide});
        project_norm(stream, gate_up_proj, x, layer.norm, gate_up);
        end_branch_of_row(stream, layer.end, pass, x, out,
                          [&](const Tensor& y, const Tensor& addend) {
                              project_activation(stream, layer.down_proj, layer.activation,
                                                 gate_up.slice_columns(0, wide),
                                                 gate_up.slice_columns(wide, 2 * wide), y, addend);
                          });
        return;
    }
    make_product(stream, layer, pass, x, saved);
    end_branch(stream, layer.end, layer.down_proj, pass, saved.product, x, out, saved.down_proj,
               saved.end);
}

void gated_mlp_recompute_and_backward(Stream& stream, const GatedMlp& layer,
                                      const PassContext& pass, const Tensor& x, const Tensor& dx) {
    Arena& arena = stream.arena();
    for_tiles(pass, x.rows(), [&](std::int64_t begin, std::int64_t end) {
        const Arena::Mark before = arena.mark();
        PassContext tile = tokens_of(pass, begin, end);
        tile.keep = true;
        tile.recompute = Recompute::nothing;
        const Tensor x_tile = x.slice_rows(begin, end);
        GatedMlpSaved saved;
        {
            const PhaseScope phase(stream.meter(), "recompute");
            const ScratchScope scope(arena);
            make_product(stream, layer, tile, x_tile, saved);
            end_branch_again(stream, layer.end, layer.down_proj, tile, saved.product, x_tile,
                             saved.down_proj, saved.end);
        }
        gated_mlp_backward(stream, layer, tile, x_tile, saved, dx.slice_rows(begin, end));
        arena.rewind(before);
    });
}

void gated_mlp_backward(Stream& stream, const GatedMlp& layer, const PassContext& pass,
                        const Tensor& x, const GatedMlpSaved& saved, const Tensor& dx) {
    Arena& arena = stream.arena();
    const ScratchScope scope(arena);
    const DType dtype = x.dtype();
    const std::int64_t tokens = x.rows();
    const std::int64_t wide = layer.down_proj.in_features();
    const Projection& gate_up_proj = layer.gate_up_proj;
    Tensor normed = saved.normed;
    Tensor gate_up = saved.gate_up;
    Tensor product = saved.product;
    PassContext again = pass;  // what it makes is scratch
    again.keep = false;
    if (pass.recompute >= Recompute::norms_and_activation)
        normed = begin_branch_again(stream, layer.norm, pass, x, gate_up_proj, normed);
    if (pass.recompute >= Recompute::gate_up) {
        gate_up = projection_output(stream, again, dtype, tokens, gate_up_proj);
        ProjectionSaved unused;
        projection_forward(stream, gate_up_proj, again, normed, features(gate_up, 2 * wide), {},
                           unused);
    } else if (pass.recompute >= Recompute::norms_and_activation) {
        projection_refill(stream, gate_up_proj, pass, normed, saved.gate_up_proj);
    }
    const Tensor gate = gate_up.slice_columns(0, wide);
    const Tensor up = gate_up.slice_columns(wide, 2 * wide);
    if (pass.recompute >= Recompute::norms_and_activation) {
        product = projection_input(stream, again, dtype, tokens, layer.down_proj);
        gated_activation_forward(stream, layer.activation, gate, up, features(product, wide));
        projection_refill(stream, layer.down_proj, pass, product, saved.down_proj);
    }

    const Tensor dproduct = arena.scratch(dtype, {tokens, wide});
    projection_backward(stream, layer.down_proj, pass, product, saved.down_proj,
                        end_branch_backward(stream, layer.end, layer.down_proj, saved.end, dx),
                        dproduct);
    gated_activation_backward(stream, layer.activation, dproduct, gate, up, gate, up);
    const Tensor dnormed = arena.scratch(dtype, {tokens, x.columns()});
    projection_backward(stream, gate_up_proj, pass, normed, saved.gate_up_proj, gate_up, dnormed);
    begin_branch_backward(stream, layer.norm, dnormed, x, saved.rstd, features(dx, x.columns()));
}

}  // namespace garam
