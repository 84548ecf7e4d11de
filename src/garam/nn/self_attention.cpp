#include "garam/nn/self_attention.h"

#include "garam/ops/elementwise.h"
#include "garam/ops/rotary.h"

namespace garam {
namespace {

// The columns of q, k and v in the output of qkv_proj, or in its gradient.
struct Heads {
    Tensor q, k, v;
};
Heads heads_of(const SelfAttention& layer, const Tensor& qkv) {
    const std::int64_t k = layer.shape.num_heads * layer.shape.head_dim;
    const std::int64_t v = k + layer.shape.num_kv_heads * layer.shape.head_dim;
    return {qkv.slice_columns(0, k), qkv.slice_columns(k, v),
            qkv.slice_columns(v, layer.qkv_proj.out_features())};
}

// q's and k's columns, which lie beside each other.
Tensor q_and_k_of(const SelfAttention& layer, const Tensor& qkv) {
    return qkv.slice_columns(
        0, (layer.shape.num_heads + layer.shape.num_kv_heads) * layer.shape.head_dim);
}

// In a tile qkv are the rows of pass.rotary_rows.
void turn_q_and_k(Stream& stream, const SelfAttention& layer, const PassContext& pass,
                  const Tensor& qkv, bool inverse) {
    if (!layer.rotary.cos) return;
    rotary(stream, q_and_k_of(layer, qkv), layer.shape.head_dim, layer.rotary.cos, layer.rotary.sin,
           pass.rotary_rows, inverse);
}

RotaryTables rotary_from(const RotaryTables& tables, std::int64_t row) {
    if (!tables.cos || row == 0) return tables;
    return {tables.cos.slice_rows(row, tables.cos.rows()),
            tables.sin.slice_rows(row, tables.sin.rows())};
}

// In place; what was there is kept for the backward.
void normalise_q_and_k(Stream& stream, const SelfAttention& layer, const PassContext& pass,
                       SelfAttentionSaved& saved) {
    if (!layer.q_norm) return;
    saved.unnormed = q_and_k_of(layer, saved.qkv);
    saved.q_rstd = saved.k_rstd = Tensor();
    if (pass.keep) {
        const Tensor q_and_k = saved.unnormed;
        saved.unnormed = make_activation(stream, pass, q_and_k.dtype(), q_and_k.shape());
        cast(stream, q_and_k, saved.unnormed);
        const auto rstd_of = [&](const RmsNorm& norm, std::int64_t heads) {
            const std::int64_t tokens = q_and_k.rows();
            return make_activation(
                stream, pass, DType::f32,
                norm.options.head_dim > 0 ? Shape{tokens, heads} : Shape{tokens});
        };
        saved.q_rstd = rstd_of(layer.q_norm, layer.shape.num_heads);
        saved.k_rstd = rstd_of(layer.k_norm, layer.shape.num_kv_heads);
    }
    const Heads heads = heads_of(layer, saved.qkv);
    const std::int64_t width = heads.q.columns();
    norm_forward(stream, layer.q_norm, features(saved.unnormed, width), heads.q, saved.q_rstd);
    norm_forward(stream, layer.k_norm,
                 saved.unnormed.slice_columns(width, saved.unnormed.columns()), heads.k,
                 saved.k_rstd);
}

// In place, of rows [begin, end) of the batch.
void normalise_q_and_k_backward(Stream& stream, const SelfAttention& layer,
                                const SelfAttentionSaved& saved, const Heads& gradients,
                                std::int64_t begin, std::int64_t end) {
    if (!layer.q_norm) return;
    const std::int64_t width = gradients.q.columns();
    const Tensor unnormed = saved.unnormed.slice_rows(begin, end);
    const auto rstd_of = [&](const Tensor& rstd) {
        return rstd.shape().rank() == 1 ? rstd.slice_elements(begin, end)
                                        : rstd.slice_rows(begin, end);
    };
    norm_backward(stream, layer.q_norm, gradients.q, features(unnormed, width),
                  rstd_of(saved.q_rstd), gradients.q, false);
    norm_backward(stream, layer.k_norm, gradients.k,
                  unnormed.slice_columns(width, unnormed.columns()), rstd_of(saved.k_rstd),
                  gradients.k, false);
}

// q, k and v, before they are normed and turned.
void project_qkv(Stream& stream, const SelfAttention& layer, const PassContext& pass,
                 const Tensor& x, SelfAttentionSaved& saved) {
    saved.tiles.clear();
    for_tiles(pass, x.rows(), [&](std::int64_t begin, std::int64_t end) {
        const ScratchScope scope(stream.arena());
        const PassContext part = tokens_of(pass, begin, end);
        SelfAttentionSaved::Tile& tile = saved.tiles.emplace_back();
        begin_branch(stream, layer.norm, part, x.slice_rows(begin, end), layer.qkv_proj,
                     tile.normed, tile.rstd);
        projection_forward(stream, layer.qkv_proj, part, tile.normed,
                           saved.qkv.slice_rows(begin, end), {}, tile.qkv_proj);
    });
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

PassContext tokens_of(const PassContext& pass, std::int64_t begin, std::int64_t end) {
    PassContext part = pass;
    part.segments = {};
    part.tile = 0;
    for (Tensor* of_tokens :
         {&part.positions, &part.rotary_rows, &part.dropout.positions, &part.dropout.samples})
        if (*of_tokens) *of_tokens = of_tokens->slice_elements(begin, end);
    return part;
}

Tensor make_activation(Stream& stream, const PassContext& pass, DType dtype, const Shape& shape,
                       Recompute dropped_from) {
    return pass.keeps(dropped_from) ? stream.arena().push(dtype, shape, Purpose::activations)
                                    : stream.arena().scratch(dtype, shape);
}

void self_attention_forward(Stream& stream, const SelfAttention& layer, const PassContext& pass,
                            const Tensor& x, const Tensor& out, SelfAttentionSaved& saved,
                            const AttentionCache* cache) {
    const ScratchScope scope(stream.arena());
    const std::int64_t tokens = x.rows();
    const DType dtype = x.dtype();

    if (layer.norm && projects_one_row(layer.qkv_proj, pass, x)) {
        saved.qkv = make_activation(stream, pass, dtype, {tokens, layer.qkv_proj.out_features()});
        project_norm(stream, layer.qkv_proj, x, layer.norm, saved.qkv);
    } else {
        saved.qkv = make_activation(stream, pass, dtype, {tokens, layer.qkv_proj.out_features()});
        project_qkv(stream, layer, pass, x, saved);
    }
    normalise_q_and_k(stream, layer, pass, saved);

    saved.attended = make_activation(stream, pass, dtype,
                                     {tokens, layer.o_proj.in_features() + layer.o_proj.tail});
    const Tensor attended = features(saved.attended, layer.o_proj.in_features());
    if (cache != nullptr) {
        const RotaryTables tables = rotary_from(layer.rotary, pass.first_rotary_row);
        cached_attention(stream, layer.shape, pass.segments, saved.qkv, tables.cos, tables.sin,
                         pass.positions, *cache, attended);
    } else {
        turn_q_and_k(stream, layer, pass, saved.qkv, false);
        const Heads heads = heads_of(layer, saved.qkv);
        saved.lse = make_activation(stream, pass, DType::f32, {tokens, layer.shape.num_heads});
        attention_forward(stream, layer.shape, pass.segments, heads.q, heads.k, heads.v, attended,
                          saved.lse);
    }
    end_branch(stream, layer.end, layer.o_proj, pass, saved.attended, x, out, saved.o_proj,
               saved.end);
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
                        end_branch_backward(stream, layer.end, layer.o_proj, saved.end, dx),
                        dattended);

    const Heads heads = heads_of(layer, saved.qkv);
    // Whole, or tile by tile: gradients then lie where what they are of was.
    const bool in_tiles = pass.tile > 0;
    const Tensor dqkv =
        in_tiles ? Tensor()
                 : arena.scratch(dtype, {tokens, qkv_proj.out_features() + qkv_proj.tail});
    const Tensor attended = features(saved.attended, width);
    const Heads gradients = in_tiles ? Heads{attended, heads.k, heads.v} : heads_of(layer, dqkv);
    attention_backward(stream, layer.shape, pass.segments, dattended, heads.q, heads.k, heads.v,
                       attended, saved.lse, gradients.q, gradients.k, gradients.v);
    const bool makes_dx = needs_dx || layer.norm.weight_gradient;
    std::size_t index = 0;
    for_tiles(pass, tokens, [&](std::int64_t begin, std::int64_t end) {
        const ScratchScope tile_scope(arena);
        const PassContext part = tokens_of(pass, begin, end);
        const SelfAttentionSaved::Tile& tile = saved.tiles[index++];
        const Tensor x_tile = x.slice_rows(begin, end);
        Tensor dqkv_tile = dqkv;
        if (in_tiles) {
            dqkv_tile =
                arena.scratch(dtype, {end - begin, qkv_proj.out_features() + qkv_proj.tail});
            const Heads to = heads_of(layer, dqkv_tile);
            cast(stream, gradients.q.slice_rows(begin, end), to.q);
            cast(stream, gradients.k.slice_rows(begin, end), to.k);
            cast(stream, gradients.v.slice_rows(begin, end), to.v);
        }
        turn_q_and_k(stream, layer, part, dqkv_tile, true);
        normalise_q_and_k_backward(stream, layer, saved, heads_of(layer, dqkv_tile), begin, end);
        const Tensor dnormed =
            makes_dx ? arena.scratch(dtype, {end - begin, x.columns()}) : Tensor();
        const Tensor normed =
            begin_branch_again(stream, layer.norm, part, x_tile, qkv_proj, tile.normed);
        if (pass.recompute >= Recompute::norms_and_activation)
            projection_refill(stream, qkv_proj, part, normed, tile.qkv_proj);
        projection_backward(stream, qkv_proj, part, normed, tile.qkv_proj, dqkv_tile, dnormed);
        if (!makes_dx) return;
        begin_branch_backward(stream, layer.norm, dnormed, x_tile, tile.rstd,
                              features(dx.slice_rows(begin, end), x.columns()));
    });
}

}  // namespace garam
