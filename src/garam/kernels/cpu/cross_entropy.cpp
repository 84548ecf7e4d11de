// Softmax cross-entropy of one row of logits, which stays in the core's cache between its passes.
#include "garam/kernels/cpu/simd.h"

GARAM_KERNELS_BEGIN

// T: of the logits, G: of the gradient.
template <class T, class G>
float cross_entropy(void* row, void* gradient_row, int64_t vocab, int64_t target) {
    T* const logits = static_cast<T*>(row);
    G* const gradient = static_cast<G*>(gradient_row);
    // The exponentials of f32 logits are kept in their place for the gradient; bf16 cannot hold them.
    constexpr bool kKeepsExponentials = __is_same(T, float);
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
    const float hot = widen(logits[target]);
    // Parts of 4096 are added in double precision.
    constexpr int64_t kPart = 4096;
    double total = 0;
    for (int64_t begin = 0; begin < vocab; begin += kPart) {
        total += static_cast<double>(sum_of(joined_run(
            vocab - begin < kPart ? vocab - begin : kPart, Vec{},
            [&](int64_t i, auto part) {
                const Vec e = exp_of(load_or_lowest(begin + i, part) - maximum);
                if constexpr (kKeepsExponentials) {
                    if (gradient != nullptr) store(logits + begin + i, e, part);
                }
                return e;
            },
            [](Vec a, Vec b) { return a + b; })));
    }
    const float loss = maximum + static_cast<float>(__builtin_log(total)) - hot;
    if (gradient != nullptr) {
        const float inverse = static_cast<float>(1.0 / total);
        for_lanes(vocab, [&](int64_t i, auto part) {
            const Vec x = load(logits + i, part);
            const Vec e = kKeepsExponentials ? x : exp_of(x - maximum);
            store(gradient + i, e * inverse, part);
        });
        store(gradient + target, exp_of(splat(hot) - maximum) * inverse - 1.0f, Tail{1});
    }
    return loss;
}

GARAM_KERNELS_END

namespace garam::cpu::GARAM_ISA {

void add_cross_entropy(KernelTable& table);
void add_cross_entropy(KernelTable& table) {
    table.f32.cross_entropy = cross_entropy<float, float>;
    table.f32.cross_entropy_to_bf16 = cross_entropy<float, Bf16>;
    table.bf16.cross_entropy = cross_entropy<Bf16, Bf16>;
}

}  // namespace garam::cpu::GARAM_ISA
