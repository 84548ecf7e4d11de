// Softmax cross-entropy of one row of logits, which stays in the core's cache between its passes.
#include "garam/kernels/cpu/simd.h"

GARAM_KERNELS_BEGIN

template <class T>
float cross_entropy(void* row, int64_t vocab, int64_t target, bool gradient) {
    T* const logits = static_cast<T*>(row);
    // Lanes beyond the end of a row must not raise its maximum or its sum.
    const auto lanes_or = [&](int64_t i, auto part, float outside) {
        Vec x = load(logits + i, part);
        if constexpr (sizeof(part) == sizeof(Tail))
            for (int64_t lane = part.lanes; lane < kLanes; ++lane)
                x[lane] = outside;
        return x;
    };
    const float lowest = -__builtin_inff();
    Vec maxima = splat(lowest);
    bool nan = false;
    for_lanes(vocab,
              [&](int64_t i, auto part) { maxima = max_of(lanes_or(i, part, lowest), maxima); });
    const float maximum = max_of(maxima);

    constexpr int64_t kPart = 64 * kLanes;
    double total = 0;
    for (int64_t begin = 0; begin < vocab; begin += kPart) {
        Vec sum{};
        for_lanes(vocab - begin < kPart ? vocab - begin : kPart, [&](int64_t i, auto part) {
            sum += exp_of(lanes_or(begin + i, part, lowest) - maximum);
        });
        total += static_cast<double>(sum_of(sum));
    }
    nan = !(total == total);
    const float lse =
        nan ? static_cast<float>(total) : maximum + static_cast<float>(__builtin_log(total));
    const float loss = lse - widen(logits[target]);
    if (gradient) {
        const float inverse = static_cast<float>(1.0 / total);
        const float hot = widen(logits[target]);
        for_lanes(vocab, [&](int64_t i, auto part) {
            store(logits + i, exp_of(load(logits + i, part) - maximum) * inverse, part);
        });
        Vec one = splat(hot);
        one = exp_of(one - maximum) * inverse - 1.0f;
        store(logits + target, one, Tail{1});
    }
    return loss;
}

GARAM_KERNELS_END

namespace garam::cpu::GARAM_ISA {

void add_cross_entropy(KernelTable& table);
void add_cross_entropy(KernelTable& table) {
    table.f32.cross_entropy = cross_entropy<float>;
    table.bf16.cross_entropy = cross_entropy<Bf16>;
}

}  // namespace garam::cpu::GARAM_ISA
