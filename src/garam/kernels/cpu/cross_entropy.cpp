// Softmax cross-entropy of one row of logits, which stays in the core's cache between its passes.
#include "garam/kernels/cpu/simd.h"

GARAM_KERNELS_BEGIN

template <class T>
float cross_entropy(void* row, int64_t vocab, int64_t target, bool gradient) {
    T* const logits = static_cast<T*>(row);
    // Lanes beyond the end of a row must not raise its maximum or its sum.
    const float lowest = -__builtin_inff();
    const auto load_or_lowest = [&](int64_t i, auto part) {
        Vec x = load(logits + i, part);
        if constexpr (__is_same(decltype(part), Tail))
            for (int64_t lane = part.lanes; lane < kLanes; ++lane)
                x[lane] = lowest;
        return x;
    };
    // A NaN is lost by the maximum, but not by the sum.
    const float maximum = max_of(joined_run(vocab, splat(lowest), load_or_lowest,
                                            [](Vec a, Vec b) { return max_of(b, a); }));
    // Parts of 4096 are added in double precision.
    constexpr int64_t kPart = 4096;
    double total = 0;
    for (int64_t begin = 0; begin < vocab; begin += kPart) {
        total += static_cast<double>(sum_of(joined_run(
            vocab - begin < kPart ? vocab - begin : kPart, Vec{},
            [&](int64_t i, auto part) { return exp_of(load_or_lowest(begin + i, part) - maximum); },
            [](Vec a, Vec b) { return a + b; })));
    }
    const float hot = widen(logits[target]);
    const float loss = maximum + static_cast<float>(__builtin_log(total)) - hot;
    if (gradient) {
        const float inverse = static_cast<float>(1.0 / total);
        for_lanes(vocab, [&](int64_t i, auto part) {
            store(logits + i, exp_of(load(logits + i, part) - maximum) * inverse, part);
        });
        store(logits + target, exp_of(splat(hot) - maximum) * inverse - 1.0f, Tail{1});
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
