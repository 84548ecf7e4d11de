// Softmax cross-entropy of one row of logits, which stays in the core's cache between its passes; and what a
// model makes of its logits before that.
#include "garam/kernels/cpu/simd.h"

GARAM_KERNELS_BEGIN

// To some 3 units in the last place; NaN stays NaN. The odd polynomial, fitted for the least relative error
// up to its end, is exact to 9e-9 there; beyond it little is lost by the subtraction.
Vec tanh_of(Vec x) {
    const Vec z = x * x;
    Vec p = splat(-0.00570498779f);
    p = p * z + 0.020639088f;
    p = p * z + -0.0537397154f;
    p = p * z + 0.133314416f;
    p = p * z + -0.333332807f;
    const Vec near = x + x * z * p;
    const Vec far = 1.0f - 2.0f / (1.0f + exp_of(x + x));
    return z < 0.625f * 0.625f ? near : far;
}

// Both grow with the logit, so that the largest logit gives the largest value.
struct Scaled {
    float factor;
    Vec value(Vec logit) const { return logit * factor; }
    Vec slope(Vec /*value*/) const { return splat(factor); }
};
struct Capped {
    float factor, softcap;
    Vec value(Vec logit) const { return tanh_of(logit * (factor / softcap)) * softcap; }
    Vec slope(Vec value) const {
        const Vec t = value / softcap;
        return (1.0f - t * t) * factor;
    }
};

// T: of the logits, G: of the gradient.
template <class T, class G, class Scale>
float cross_entropy_of(const Scale& scale, float smoothing, T* logits, G* gradient, int64_t vocab,
                       int64_t target) {
    // For the gradient f32 logits make place for the exponentials, or where the slope needs them for the
    // values; bf16 cannot hold either.
    constexpr bool kKeeps = __is_same(T, float);
    constexpr bool kKeepsExponentials = kKeeps && __is_same(Scale, Scaled);
    // Lanes beyond the end of a row must not raise its maximum or its sum.
    const float lowest = -__builtin_inff();
    const auto lowest_beyond = [&](Vec x, auto part) {
        if constexpr (__is_same(decltype(part), Tail))
            for (int64_t lane = part.lanes; lane < kLanes; ++lane)
                x[lane] = lowest;
        return x;
    };
    // A NaN is lost by the maximum, but not by the sum.
    const float largest = max_of(joined_run(
        vocab, splat(lowest),
        [&](int64_t i, auto part) { return lowest_beyond(load(logits + i, part), part); },
        [](Vec a, Vec b) { return max_of(b, a); }));
    const float maximum = scale.value(splat(largest))[0];
    const float hot = scale.value(splat(widen(logits[target])))[0];
    // Parts of 4096 are added in double precision.
    constexpr int64_t kPart = 4096;
    double sum_of_values = 0;  // with smoothing, whose part of the loss is that of their mean
    for (int64_t begin = 0; smoothing > 0 && begin < vocab; begin += kPart) {
        sum_of_values += static_cast<double>(sum_of(joined_run(
            vocab - begin < kPart ? vocab - begin : kPart, Vec{},
            // Lanes beyond the end are zero, and so is their value.
            [&](int64_t i, auto part) { return scale.value(load(logits + begin + i, part)); },
            [](Vec a, Vec b) { return a + b; })));
    }
    double total = 0;
    for (int64_t begin = 0; begin < vocab; begin += kPart) {
        total += static_cast<double>(sum_of(joined_run(
            vocab - begin < kPart ? vocab - begin : kPart, Vec{},
            [&](int64_t i, auto part) {
                const Vec value = scale.value(load(logits + begin + i, part));
                const Vec e = exp_of(lowest_beyond(value, part) - maximum);
                if constexpr (kKeeps) {
                    if (gradient != nullptr)
                        store(logits + begin + i, kKeepsExponentials ? e : value, part);
                }
                return e;
            },
            [](Vec a, Vec b) { return a + b; })));
    }
    const float mean = static_cast<float>(sum_of_values / static_cast<double>(vocab));
    const float wanted = smoothing > 0 ? hot + smoothing * (mean - hot) : hot;
    const float loss = maximum + static_cast<float>(__builtin_log(total)) - wanted;
    if (gradient != nullptr) {
        const float inverse = static_cast<float>(1.0 / total);
        const float uniform = smoothing / static_cast<float>(vocab);
        for_lanes(vocab, [&](int64_t i, auto part) {
            const Vec x = load(logits + i, part);
            const Vec value = kKeeps ? x : scale.value(x);
            const Vec e = kKeepsExponentials ? x : exp_of(value - maximum);
            store(gradient + i, (e * inverse - uniform) * scale.slope(value), part);
        });
        const Vec at_target = exp_of(splat(hot) - maximum) * inverse - uniform - (1.0f - smoothing);
        store(gradient + target, at_target * scale.slope(splat(hot)), Tail{1});
    }
    return loss;
}

template <class T, class G>
float cross_entropy(void* row, LogitScale scale, float smoothing, void* gradient_row, int64_t vocab,
                    int64_t target) {
    T* const logits = static_cast<T*>(row);
    G* const gradient = static_cast<G*>(gradient_row);
    if (scale.softcap > 0)
        return cross_entropy_of(Capped{scale.factor, scale.softcap}, smoothing, logits, gradient,
                                vocab, target);
    return cross_entropy_of(Scaled{scale.factor}, smoothing, logits, gradient, vocab, target);
}

template <class T>
void scale_logits(void* logits, LogitScale scale, int64_t n) {
    T* const x = static_cast<T*>(logits);
    const auto write = [&](const auto& by) {
        for_lanes(n,
                  [&](int64_t i, auto part) { store(x + i, by.value(load(x + i, part)), part); });
    };
    if (scale.softcap > 0)
        write(Capped{scale.factor, scale.softcap});
    else
        write(Scaled{scale.factor});
}

GARAM_KERNELS_END

namespace garam::cpu::GARAM_ISA {

void add_cross_entropy(KernelTable& table);
void add_cross_entropy(KernelTable& table) {
    table.f32.scale_logits = scale_logits<float>;
    table.bf16.scale_logits = scale_logits<Bf16>;
    table.f32.cross_entropy = cross_entropy<float, float>;
    table.f32.cross_entropy_to_bf16 = cross_entropy<float, Bf16>;
    table.bf16.cross_entropy = cross_entropy<Bf16, Bf16>;
}

}  // namespace garam::cpu::GARAM_ISA
