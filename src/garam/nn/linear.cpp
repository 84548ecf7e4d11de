#include "garam/nn/linear.h"

#include "garam/ops/bias.h"
#include "garam/ops/dora.h"
#include "garam/ops/elementwise.h"
#include "garam/ops/matmul.h"
#include "garam/ops/quantized_matmul.h"

namespace garam {
namespace {

DropoutKey key_of(const DropoutContext& context, const LoraAdapter& lora) {
    return {context.seed, context.step, lora.module, context.positions, context.samples};
}

// c = a Wᵀ or, without transpose_b, a W.
void multiply(Stream& stream, const Tensor& a, const Linear& linear, const Tensor& c,
              const MatmulOptions& options) {
    if (linear.weight) {
        matmul(stream, a, linear.weight, c, options);
    } else {
        quantized_matmul(stream, a, linear.quantized, c, options);
    }
}

bool drops(const LoraAdapter& lora, const DropoutContext& context) {
    return context.training && lora.dropout > 0;
}

// The adapter's input: x itself, or a masked copy in scratch memory.
Tensor adapter_input(Stream& stream, const LoraAdapter& lora, const Tensor& x,
                     const DropoutContext& context) {
    if (!drops(lora, context)) return x;
    const Tensor masked = stream.arena().scratch(x.dtype(), x.shape());
    dropout(stream, x, lora.dropout, key_of(context, lora), masked, false);
    return masked;
}

// y = c ⊙ z + (x - d) Wᵀ + b with z = d Wᵀ + s u Bᵀ; without dropout d is x.
void dora_forward(Stream& stream, const Linear& linear, const Tensor& x, const Tensor& y,
                  bool accumulate, const DropoutContext& context, const LinearSaved& saved) {
    const LoraAdapter& lora = *linear.lora;
    Arena& arena = stream.arena();
    const ScratchScope scope(arena);
    const bool masked = drops(lora, context);
    const Tensor u = saved.u ? saved.u : arena.scratch(x.dtype(), {x.rows(), lora.A.extent(0)});
    // Never y itself: a card may sum in another order for another pitch.
    const Tensor z = saved.z ? saved.z : arena.scratch(y.dtype(), y.shape());
    const Tensor input = adapter_input(stream, lora, x, context);
    matmul(stream, input, lora.A, u, {.transpose_b = true});
    multiply(stream, input, linear, z, {.transpose_b = true});
    matmul(stream, u, lora.B, z, {.transpose_b = true, .alpha = lora.scaling, .accumulate = true});
    if (masked) {
        const Tensor rest = input;  // what dropout took away
        scale(stream, input, -1, rest);
        add(stream, x, rest, rest);
        multiply(stream, rest, linear, y, {.transpose_b = true, .accumulate = accumulate});
    }
    scale_columns(stream, z, lora.dora_scale, 0, linear.bias, accumulate || masked ? y : Tensor(),
                  y);
}

void dora_backward(Stream& stream, const Linear& linear, const Tensor& x, const LinearSaved& saved,
                   const Tensor& dy, const Tensor& dx, bool accumulate_dx,
                   const DropoutContext& context) {
    GARAM_CHECK(!linear.weight_gradient, "a weight trained beside DoRA");
    const LoraAdapter& lora = *linear.lora;
    Arena& arena = stream.arena();
    const ScratchScope scope(arena);
    const bool masked = drops(lora, context);
    if (linear.bias_gradient) bias_backward(stream, dy, linear.bias_gradient);
    const Tensor dz = arena.scratch(dy.dtype(), dy.shape());
    const Tensor du = arena.scratch(x.dtype(), {x.rows(), lora.A.extent(0)});
    dora_backward(stream, dy, saved.z, lora.dora_scale, lora.dora_norm, dz,
                  lora.magnitude_gradient);
    matmul(stream, dz, saved.u, lora.B_gradient,
           {.transpose_a = true, .alpha = lora.scaling, .accumulate = true});
    matmul(stream, dz, lora.B, du, {.alpha = lora.scaling});
    const Tensor input = adapter_input(stream, lora, x, context);
    matmul(stream, du, input, lora.A_gradient, {.transpose_a = true, .accumulate = true});
    if (!dx) return;
    if (!masked) {
        multiply(stream, dz, linear, dx, {.accumulate = accumulate_dx});
        matmul(stream, du, lora.A, dx, {.accumulate = true});
        return;
    }
    // dx = dy W + mask ⊙ ((c - 1) ⊙ dy W + du A)
    multiply(stream, dy, linear, dx, {.accumulate = accumulate_dx});
    scale_columns(stream, dy, lora.dora_scale, -1, {}, {}, dz);
    const Tensor through_mask = input;  // the masked input is not needed any more
    multiply(stream, dz, linear, through_mask, {});
    matmul(stream, du, lora.A, through_mask, {.accumulate = true});
    dropout(stream, through_mask, lora.dropout, key_of(context, lora), dx, true);
}

}  // namespace

void linear_forward(Stream& stream, const Linear& linear, const Tensor& x, const Tensor& y,
                    bool accumulate, const DropoutContext& context, const LinearSaved& saved) {
    if (linear.lora && linear.lora->is_dora())
        return dora_forward(stream, linear, x, y, accumulate, context, saved);
    multiply(stream, x, linear, y, {.transpose_b = true, .accumulate = accumulate});
    if (linear.bias) bias_add(stream, linear.bias, y);
    if (!linear.lora) return;
    const LoraAdapter& lora = *linear.lora;
    const ScratchScope scope(stream.arena());
    const Tensor u =
        saved.u ? saved.u : stream.arena().scratch(x.dtype(), {x.rows(), lora.A.extent(0)});
    const Tensor input = adapter_input(stream, lora, x, context);
    matmul(stream, input, lora.A, u, {.transpose_b = true});
    matmul(stream, u, lora.B, y, {.transpose_b = true, .alpha = lora.scaling, .accumulate = true});
}

void linear_prepare(Stream& stream, const Linear& linear, const Tensor& x,
                    const DropoutContext& context, const LinearSaved& saved) {
    if (!linear.lora) return;
    const LoraAdapter& lora = *linear.lora;
    const ScratchScope scope(stream.arena());
    if (lora.is_dora()) {
        const Tensor y = stream.arena().scratch(x.dtype(), {x.rows(), linear.out_features()});
        return dora_forward(stream, linear, x, y, false, context, saved);
    }
    const Tensor input = adapter_input(stream, lora, x, context);
    matmul(stream, input, lora.A, saved.u, {.transpose_b = true});
}

void linear_backward(Stream& stream, const Linear& linear, const Tensor& x,
                     const LinearSaved& saved, const Tensor& dy, const Tensor& dx,
                     bool accumulate_dx, const DropoutContext& context) {
    if (linear.lora && linear.lora->is_dora())
        return dora_backward(stream, linear, x, saved, dy, dx, accumulate_dx, context);
    if (linear.weight_gradient)
        matmul(stream, dy, x, linear.weight_gradient, {.transpose_a = true, .accumulate = true});
    if (linear.bias_gradient) bias_backward(stream, dy, linear.bias_gradient);
    if (dx) multiply(stream, dy, linear, dx, {.accumulate = accumulate_dx});
    if (!linear.lora) return;

    const LoraAdapter& lora = *linear.lora;
    const ScratchScope scope(stream.arena());
    const Tensor du = stream.arena().scratch(x.dtype(), {x.rows(), lora.A.extent(0)});
    matmul(stream, dy, saved.u, lora.B_gradient,
           {.transpose_a = true, .alpha = lora.scaling, .accumulate = true});
    matmul(stream, dy, lora.B, du, {.alpha = lora.scaling});
    const Tensor input = adapter_input(stream, lora, x, context);
    matmul(stream, du, input, lora.A_gradient, {.transpose_a = true, .accumulate = true});
    if (!dx) return;
    if (!drops(lora, context)) {
        matmul(stream, du, lora.A, dx, {.accumulate = true});
        return;
    }
    const Tensor through_mask = input;  // the masked input is not needed any more
    matmul(stream, du, lora.A, through_mask);
    dropout(stream, through_mask, lora.dropout, key_of(context, lora), dx, true);
}

}  // namespace garam
