#include "garam/nn/linear.h"

#include "garam/ops/bias.h"
#include "garam/ops/matmul.h"

namespace garam {
namespace {

DropoutKey key_of(const DropoutContext& context, const LoraAdapter& lora) {
    return {context.seed, context.step, lora.module, context.positions, context.samples};
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

}  // namespace

void linear_forward(Stream& stream, const Linear& linear, const Tensor& x, const Tensor& y,
                    bool accumulate, const DropoutContext& context, const Tensor& u) {
    matmul(stream, x, linear.weight, y, {.transpose_b = true, .accumulate = accumulate});
    if (linear.bias) bias_add(stream, linear.bias, y);
    if (!linear.lora) return;
    const LoraAdapter& lora = *linear.lora;
    const ScratchScope scope(stream.arena());
    const Tensor kept = u ? u : stream.arena().scratch(x.dtype(), {x.rows(), lora.A.extent(0)});
    const Tensor input = adapter_input(stream, lora, x, context);
    matmul(stream, input, lora.A, kept, {.transpose_b = true});
    matmul(stream, kept, lora.B, y,
           {.transpose_b = true, .alpha = lora.scaling, .accumulate = true});
}

void linear_backward(Stream& stream, const Linear& linear, const Tensor& x, const Tensor& u,
                     const Tensor& dy, const Tensor& dx, bool accumulate_dx,
                     const DropoutContext& context) {
    if (linear.weight_gradient)
        matmul(stream, dy, x, linear.weight_gradient, {.transpose_a = true, .accumulate = true});
    if (linear.bias_gradient) bias_backward(stream, dy, linear.bias_gradient);
    if (dx) matmul(stream, dy, linear.weight, dx, {.accumulate = accumulate_dx});
    if (!linear.lora) return;

    const LoraAdapter& lora = *linear.lora;
    const ScratchScope scope(stream.arena());
    const Tensor du = stream.arena().scratch(x.dtype(), {x.rows(), lora.A.extent(0)});
    matmul(stream, dy, u, lora.B_gradient,
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
