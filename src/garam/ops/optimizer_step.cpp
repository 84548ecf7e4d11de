#include "garam/ops/optimizer_step.h"

#include <cmath>

#include "garam/kernels/cuda/optimizer.h"
#include "garam/ops/checks.h"
#include "garam/ops/cpu_kernels.h"
#include "garam/ops/cuda_kernels.h"

namespace garam {
namespace {

// What the kernels of either device take, worked out in double precision.
template <typename Step>
Step adamw_constants(const AdamWOptions& options) {
    const double t = static_cast<double>(options.step);
    Step step{};
    step.decay = static_cast<float>(1 - options.learning_rate * options.weight_decay);
    step.beta1 = static_cast<float>(options.beta1);
    step.beta2 = static_cast<float>(options.beta2);
    step.one_minus_beta1 = static_cast<float>(1 - options.beta1);
    step.one_minus_beta2 = static_cast<float>(1 - options.beta2);
    step.step_size = static_cast<float>(options.learning_rate / (1 - std::pow(options.beta1, t)));
    step.root_correction = static_cast<float>(std::sqrt(1 - std::pow(options.beta2, t)));
    step.epsilon = static_cast<float>(options.epsilon);
    return step;
}

template <typename Step>
Step sgd_constants(const SgdOptions& options) {
    Step step{};
    step.learning_rate = static_cast<float>(options.learning_rate);
    step.momentum = static_cast<float>(options.momentum);
    step.one_minus_dampening = static_cast<float>(1 - options.dampening);
    step.weight_decay = static_cast<float>(options.weight_decay);
    step.nesterov = options.nesterov;
    step.first = options.step == 1;
    return step;
}

}  // namespace

void adamw_step(Stream& stream, const AdamWOptions& options, const Tensor& weight,
                const Tensor& gradient, const Tensor& gradient_scale, const Tensor& m,
                const Tensor& v) {
    constexpr const char* kName = "adamw_step";
    const std::int64_t n = weight.elements();
    for (const Tensor* x : {&weight, &gradient, &m, &v})
        check_vector(stream, kName, *x, n, DType::f32);
    check_vector(stream, kName, gradient_scale, 1, DType::f32);
    GARAM_CHECK(options.step >= 1, "adamw_step: steps count from 1");

    Cost cost;
    cost.flops = 15.0 * static_cast<double>(n);
    cost.bytes_read = bytes_of({&weight, &gradient, &m, &v});
    cost.bytes_written = bytes_of({&weight, &m, &v});
    OpScope op(stream, kName, cost);
    if (op.dry()) return;

    if (runs_on_cuda(stream)) {
        cuda::optimizer_kernels().adamw(
            stream.queue(), adamw_constants<cuda::AdamWStep>(options), gradient_scale.data<float>(),
            weight.data<float>(), gradient.data<float>(), m.data<float>(), v.data<float>(), n);
        return;
    }
    auto step = adamw_constants<cpu::AdamWStep>(options);
    step.gradient_scale = *gradient_scale.data<float>();
    if (std::isnan(step.gradient_scale)) return;
    const auto kernel = kernel_table(stream).adamw;
    parallel_for(n, kPieceElements, [&](std::int64_t begin, std::int64_t end) {
        kernel(step, weight.data<float>() + begin, gradient.data<float>() + begin,
               m.data<float>() + begin, v.data<float>() + begin, end - begin);
    });
}

void sgd_step(Stream& stream, const SgdOptions& options, const Tensor& weight,
              const Tensor& gradient, const Tensor& gradient_scale, const Tensor& buffer) {
    constexpr const char* kName = "sgd_step";
    const std::int64_t n = weight.elements();
    const bool momentum = options.momentum != 0;
    check_vector(stream, kName, weight, n, DType::f32);
    check_vector(stream, kName, gradient, n, DType::f32);
    if (momentum) check_vector(stream, kName, buffer, n, DType::f32);
    check_vector(stream, kName, gradient_scale, 1, DType::f32);
    GARAM_CHECK(options.step >= 1, "sgd_step: steps count from 1");

    Cost cost;
    const bool first = options.step == 1;
    // g = scale * gradient + decay * w, w -= lr * g; the buffer's update, and the look-ahead.
    const double momentum_flops =
        momentum ? (first ? 0.0 : 3.0) + (options.nesterov ? 2.0 : 0.0) : 0.0;
    cost.flops = (5.0 + momentum_flops) * static_cast<double>(n);
    cost.bytes_read =
        bytes_of({&weight, &gradient}) + (momentum && !first ? bytes_of({&buffer}) : 0.0);
    cost.bytes_written = bytes_of({&weight}) + (momentum ? bytes_of({&buffer}) : 0.0);
    OpScope op(stream, kName, cost);
    if (op.dry()) return;

    if (runs_on_cuda(stream)) {
        cuda::optimizer_kernels().sgd(stream.queue(), sgd_constants<cuda::SgdStep>(options),
                                      gradient_scale.data<float>(), weight.data<float>(),
                                      gradient.data<float>(),
                                      momentum ? buffer.data<float>() : nullptr, n);
        return;
    }
    auto step = sgd_constants<cpu::SgdStep>(options);
    step.gradient_scale = *gradient_scale.data<float>();
    if (std::isnan(step.gradient_scale)) return;
    const auto kernel = kernel_table(stream).sgd;
    parallel_for(n, kPieceElements, [&](std::int64_t begin, std::int64_t end) {
        kernel(step, weight.data<float>() + begin, gradient.data<float>() + begin,
               momentum ? buffer.data<float>() + begin : nullptr, end - begin);
    });
}

}  // namespace garam
