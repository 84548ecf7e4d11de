#include "garam/nn/projection.h"

#include "garam/core/error.h"
#include "garam/nn/pass_context.h"
#include "garam/nn/weight_stream.h"
#include "garam/ops/bias.h"
#include "garam/ops/dora.h"
#include "garam/ops/elementwise.h"
#include "garam/ops/matmul.h"
#include "garam/ops/quantized_matmul.h"
#include "garam/ops/quantized_row_matmul.h"
#include "garam/ops/row_matmul.h"

namespace garam {
namespace {

LoraMask mask_of(const DropoutContext& dropout, const LoraGroup& group) {
    return {dropout.training && group.dropout > 0, dropout.seed, dropout.step, dropout.positions,
            dropout.samples};
}

Tensor tail_of(const Projection& projection, const Tensor& wide) {
    return wide.slice_columns(wide.columns() - projection.tail, wide.columns());
}

Tensor part_of(const Projection& projection, std::size_t part, const Tensor& y) {
    const std::int64_t begin = projection.column(part);
    return y.slice_columns(begin, begin + projection.parts[part].out_features());
}

bool is_settled(const Projection& projection) {
    return projection.streamed < 0;
}

// Whether a row is multiplied with codes.
bool takes_codes(const Projection& projection) {
    return projection.streamed >= 0 && (projection.tail == 0 || projection.row_A);
}

// One row with codes, whose operand is given.
void forward_by_codes(Stream& stream, const Projection& projection, const Tensor& x,
                      const Tensor& y, const Tensor& addend) {
    const Tensor input = features(x, projection.in_features());
    const ScratchScope scope(stream.arena());
    Tensor u;
    if (projection.tail > 0) {
        u = stream.arena().scratch(x.dtype(), {x.rows(), projection.tail});
        matmul(stream, input, projection.row_A, u, {.transpose_b = true, .b_is_settled = true});
    }
    for (std::size_t p = 0; p < projection.parts.size(); ++p) {
        const std::int64_t begin = projection.column(p);
        const std::int64_t end = begin + projection.parts[p].out_features();
        const Tensor out = part_of(projection, p, y);
        MatmulOptions options{.transpose_b = true, .b_is_settled = true};
        if (addend) options.addend = part_of(projection, p, addend);
        if (projection.bias) options.bias = projection.bias.slice_elements(begin, end);
        quantized_matmul(stream, input, projection.parts[p].quantized, out, options);
        if (u)
            matmul(stream, u, projection.row_B.slice_rows(begin, end), out,
                   {.transpose_b = true, .accumulate = true, .b_is_settled = true});
    }
}

// The parts of a row product with codes.
struct StackedParts {
    std::array<QuantizedMatrix, Projection::kMostParts> matrices;
    std::size_t count = 0;

    explicit StackedParts(const Projection& projection) {
        for (const Linear& linear : projection.parts)
            matrices[count++] = linear.quantized;
    }
    operator std::span<const QuantizedMatrix>() const { return {matrices.data(), count}; }
};
static_assert(Projection::kMostParts <= kMostStacked);

RowMatmulOptions row_options(const Projection& projection, const Tensor& tail,
                             const Tensor& addend) {
    RowMatmulOptions options{.tail = tail, .addend = addend, .bias = projection.bias};
    if (tail) options.tail_weight = projection.row_B;
    return options;
}

void acquire(Stream& stream, const Projection& projection, const PassContext& pass) {
    if (projection.streamed < 0) return;
    GARAM_CHECK(pass.weights != nullptr, "a pass without the weights that it decodes");
    pass.weights->acquire(stream, projection.streamed);
}

// The tail of x, and what else of packed weights stands before the product; with DoRA the product.
void prepare_packed(Stream& stream, const Projection& projection, const PassContext& pass,
                    const Tensor& x, ProjectionSaved& saved) {
    if (projection.tail > 0) {
        LoraMask mask = mask_of(pass.dropout, projection.lora);
        const std::int64_t in = projection.in_features();
        const std::int64_t kept_bytes = lora_kept_bytes(projection.lora, in);
        saved.kept = pass.keep && mask.active && kept_bytes > 0
                         ? make_activation(stream, pass, DType::u8, {x.rows(), kept_bytes})
                         : Tensor();
        mask.kept = saved.kept;
        if (pass.decoding && x.rows() == 1)
            matmul(stream, features(x, in), projection.lora.A, tail_of(projection, x),
                   {.transpose_b = true, .b_is_settled = is_settled(projection)});
        else
            saved.kept_is_written =
                lora_down(stream, projection.lora, mask, features(x, in), tail_of(projection, x));
    }
    if (!projection.dora_scale) return;
    const std::int64_t out = projection.out_features();
    // Never y itself: a card may sum in another order for another pitch.
    saved.z = make_activation(stream, pass, x.dtype(), {x.rows(), out});
    matmul(stream, x, projection.packed.slice_rows(0, out), saved.z,
           {.transpose_b = true, .b_is_settled = is_settled(projection), .tail = projection.tail});
}

LinearSaved make_saved(Stream& stream, const Linear& linear, const PassContext& pass,
                       const Tensor& x) {
    LinearSaved saved;
    if (!linear.lora || !pass.keep) return saved;
    saved.u = make_activation(stream, pass, x.dtype(), {x.rows(), linear.lora->A.extent(0)});
    if (linear.lora->is_dora())
        saved.z = make_activation(stream, pass, x.dtype(), {x.rows(), linear.out_features()});
    return saved;
}

void forward_by_parts(Stream& stream, const Projection& projection, const PassContext& pass,
                      const Tensor& x, const Tensor& y, const Tensor& addend,
                      ProjectionSaved& saved) {
    if (addend) cast(stream, addend, y);
    for (std::size_t p = 0; p < projection.parts.size(); ++p) {
        const Linear& linear = projection.parts[p];
        saved.parts[p] = make_saved(stream, linear, pass, x);
        linear_forward(stream, linear, x, part_of(projection, p, y), static_cast<bool>(addend),
                       pass.dropout, saved.parts[p]);
    }
}

void backward_by_parts(Stream& stream, const Projection& projection, const PassContext& pass,
                       const Tensor& x, const ProjectionSaved& saved, const Tensor& dy,
                       const Tensor& dx) {
    for (std::size_t p = 0; p < projection.parts.size(); ++p)
        linear_backward(stream, projection.parts[p], x, saved.parts[p], part_of(projection, p, dy),
                        dx, p > 0, pass.dropout);
}

// [tokens, out + tail]: the gradient of z, and room for dh.
Tensor gradient_of_z(Stream& stream, const Projection& projection, const Tensor& z,
                     const Tensor& dy) {
    const std::int64_t out = projection.out_features();
    const Tensor dz = stream.arena().scratch(dy.dtype(), {dy.rows(), out + projection.tail});
    for (std::size_t p = 0; p < projection.parts.size(); ++p) {
        const Linear& linear = projection.parts[p];
        if (linear.lora) {
            dora_backward(stream, part_of(projection, p, dy), part_of(projection, p, z),
                          linear.lora->dora_scale, linear.lora->dora_norm,
                          part_of(projection, p, dz), linear.lora->magnitude_gradient);
        } else {
            cast(stream, part_of(projection, p, dy), part_of(projection, p, dz));
        }
    }
    return dz;
}

}  // namespace

std::int64_t Projection::out_features() const {
    return column(parts.size());
}

std::int64_t Projection::column(std::size_t part) const {
    std::int64_t begin = 0;
    for (std::size_t p = 0; p < part; ++p)
        begin += parts[p].out_features();
    return begin;
}

std::int64_t projection_tail(std::int64_t adapters, std::int64_t rank) {
    // A pitch that is no multiple of 64 elements made products three times slower on an H200.
    constexpr std::int64_t kPitch = 64;
    return (adapters * rank + kPitch - 1) / kPitch * kPitch;
}

Tensor projection_input(Stream& stream, const PassContext& pass, DType dtype, std::int64_t tokens,
                        const Projection& projection) {
    return make_activation(stream, pass, dtype,
                           {tokens, projection.in_features() + projection.tail},
                           Recompute::norms_and_activation);
}

Tensor projection_output(Stream& stream, const PassContext& pass, DType dtype, std::int64_t tokens,
                         const Projection& projection) {
    return make_activation(stream, pass, dtype,
                           {tokens, projection.out_features() + projection.tail},
                           Recompute::gate_up);
}

void projection_forward(Stream& stream, const Projection& projection, const PassContext& pass,
                        const Tensor& x, const Tensor& y, const Tensor& addend,
                        ProjectionSaved& saved) {
    if (projects_one_row(projection, pass, x) && takes_codes(projection)) {
        forward_by_codes(stream, projection, x, y, addend);
        return;
    }
    acquire(stream, projection, pass);
    if (!projection.packed) {
        forward_by_parts(stream, projection, pass, x, y, addend, saved);
        return;
    }
    prepare_packed(stream, projection, pass, x, saved);
    if (projection.dora_scale) {
        scale_columns(stream, saved.z, projection.dora_scale, 0, projection.bias, addend, y);
        return;
    }
    matmul(stream, x, projection.packed.slice_rows(0, projection.out_features()), y,
           {.transpose_b = true,
            .b_is_settled = is_settled(projection),
            .tail = projection.tail,
            .addend = addend,
            .bias = projection.bias});
}

void projection_prepare(Stream& stream, const Projection& projection, const PassContext& pass,
                        const Tensor& x, ProjectionSaved& saved) {
    acquire(stream, projection, pass);
    if (projection.packed) {
        prepare_packed(stream, projection, pass, x, saved);
        return;
    }
    for (std::size_t p = 0; p < projection.parts.size(); ++p) {
        const Linear& linear = projection.parts[p];
        saved.parts[p] = make_saved(stream, linear, pass, x);
        linear_prepare(stream, linear, x, pass.dropout, saved.parts[p]);
    }
}

bool projects_one_row(const Projection& projection, const PassContext& pass, const Tensor& x) {
    return pass.decoding && x.rows() == 1 && projection.packed && !projection.dora_scale &&
           (is_settled(projection) || takes_codes(projection));
}

void project_norm(Stream& stream, const Projection& projection, const Tensor& x,
                  const RmsNorm& norm, const Tensor& y) {
    const ScratchScope scope(stream.arena());
    if (takes_codes(projection)) {
        Tensor tail;
        if (projection.tail > 0) {
            tail = stream.arena().scratch(x.dtype(), {1, projection.tail});
            rms_norm_matmul(stream, x, norm.weight, norm.eps, projection.row_A, tail, {},
                            norm.options);
        }
        rms_norm_matmul(stream, x, norm.weight, norm.eps, StackedParts(projection), y,
                        row_options(projection, tail, {}), norm.options);
        return;
    }
    RowMatmulOptions options{.bias = projection.bias};
    if (projection.tail > 0) {
        options.tail = stream.arena().scratch(x.dtype(), {1, projection.tail});
        rms_norm_matmul(stream, x, norm.weight, norm.eps, projection.lora.A, options.tail, {},
                        norm.options);
    }
    rms_norm_matmul(stream, x, norm.weight, norm.eps,
                    projection.packed.slice_rows(0, projection.out_features()), y, options,
                    norm.options);
}

void project_activation(Stream& stream, const Projection& projection, Activation activation,
                        const Tensor& gate, const Tensor& up, const Tensor& y,
                        const Tensor& addend) {
    const ScratchScope scope(stream.arena());
    if (takes_codes(projection)) {
        Tensor tail;
        if (projection.tail > 0) {
            tail = stream.arena().scratch(gate.dtype(), {1, projection.tail});
            gated_activation_matmul(stream, activation, gate, up, projection.row_A, tail);
        }
        gated_activation_matmul(stream, activation, gate, up, StackedParts(projection), y,
                                row_options(projection, tail, addend));
        return;
    }
    RowMatmulOptions options{.addend = addend, .bias = projection.bias};
    if (projection.tail > 0) {
        options.tail = stream.arena().scratch(gate.dtype(), {1, projection.tail});
        gated_activation_matmul(stream, activation, gate, up, projection.lora.A, options.tail);
    }
    gated_activation_matmul(stream, activation, gate, up,
                            projection.packed.slice_rows(0, projection.out_features()), y, options);
}

void projection_refill(Stream& stream, const Projection& projection, const PassContext& pass,
                       const Tensor& x, const ProjectionSaved& saved) {
    if (projection.tail == 0) return;
    acquire(stream, projection, pass);
    LoraMask mask = mask_of(pass.dropout, projection.lora);
    mask.kept = saved.kept;
    mask.kept_is_written = saved.kept_is_written;
    lora_down(stream, projection.lora, mask, features(x, projection.in_features()),
              tail_of(projection, x));
}

void projection_backward(Stream& stream, const Projection& projection, const PassContext& pass,
                         const Tensor& x, const ProjectionSaved& saved, const Tensor& dy,
                         const Tensor& dx) {
    acquire(stream, projection, pass);
    if (!projection.packed) {
        backward_by_parts(stream, projection, pass, x, saved, dy, dx);
        return;
    }
    const ScratchScope scope(stream.arena());
    const std::int64_t in = projection.in_features();
    const std::int64_t out = projection.out_features();
    const Tensor input = features(x, in);
    const Tensor gradient = features(dy, out);
    for (std::size_t p = 0; p < projection.parts.size(); ++p) {
        const Linear& linear = projection.parts[p];
        const Tensor dy_part = part_of(projection, p, gradient);
        if (linear.weight_gradient)
            matmul(stream, dy_part, input, linear.weight_gradient,
                   {.transpose_a = true, .accumulate = true});
        if (linear.bias_gradient) bias_backward(stream, dy_part, linear.bias_gradient);
    }
    if (projection.tail == 0) {
        if (dx) matmul(stream, gradient, projection.packed, dx);
        return;
    }
    const Tensor wide =
        projection.dora_scale ? gradient_of_z(stream, projection, saved.z, gradient) : dy;
    const Tensor dz = features(wide, out);
    LoraMask mask = mask_of(pass.dropout, projection.lora);
    const Tensor dh = tail_of(projection, wide);
    lora_up_backward(stream, projection.lora, dz, tail_of(projection, x), dh);
    mask.kept = saved.kept;
    mask.kept_is_written = saved.kept_is_written;
    lora_down_backward(stream, projection.lora, mask, input, dh);
    if (!dx) return;
    if (mask.active) {
        const Tensor weight = projection.packed.slice_rows(0, out).slice_columns(0, in);
        matmul(stream, dz, weight, dx);
        lora_input_backward(stream, projection.lora, mask, dh, dx);
    } else {
        matmul(stream, wide, projection.packed.slice_columns(0, in), dx, {.tail = projection.tail});
    }
}

}  // namespace garam
