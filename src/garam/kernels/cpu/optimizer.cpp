// Updates of a run of parameters. Bound by memory: four arrays read, three written.
#include "garam/kernels/cpu/simd.h"

GARAM_KERNELS_BEGIN

Vec sqrt_of(Vec x) {
    for (int lane = 0; lane < kLanes; ++lane)
        x[lane] = __builtin_sqrtf(x[lane]);
    return x;
}

void adamw(const AdamWStep& step, float* weight, const float* gradient, float* m, float* v,
           int64_t n) {
    for_lanes(n, [&](int64_t i, auto part) {
        const Vec g = load(gradient + i, part) * step.gradient_scale;
        const Vec first = load(m + i, part) * step.beta1 + g * step.one_minus_beta1;
        const Vec second = load(v + i, part) * step.beta2 + g * g * step.one_minus_beta2;
        const Vec root = sqrt_of(second) / step.root_correction + step.epsilon;
        const Vec decayed = load(weight + i, part) * step.decay;
        store(m + i, first, part);
        store(v + i, second, part);
        store(weight + i, decayed - step.step_size * (first / root), part);
    });
}

void sgd(const SgdStep& step, float* weight, const float* gradient, float* buffer, int64_t n) {
    for_lanes(n, [&](int64_t i, auto part) {
        const Vec w = load(weight + i, part);
        Vec g = load(gradient + i, part) * step.gradient_scale + w * step.weight_decay;
        if (buffer != nullptr) {
            const Vec moved =
                step.first ? g
                           : load(buffer + i, part) * step.momentum + g * step.one_minus_dampening;
            store(buffer + i, moved, part);
            g = step.nesterov ? g + moved * step.momentum : moved;
        }
        store(weight + i, w - g * step.learning_rate, part);
    });
}

GARAM_KERNELS_END

namespace garam::cpu::GARAM_ISA {

void add_optimizer(KernelTable& table);
void add_optimizer(KernelTable& table) {
    table.adamw = adamw;
    table.sgd = sgd;
}

}  // namespace garam::cpu::GARAM_ISA
