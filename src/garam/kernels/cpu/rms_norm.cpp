// Root-mean-square norm of rows. Bound by memory: a row is read once, the second pass finds it in
// L1.
#include "garam/kernels/cpu/simd.h"

GARAM_KERNELS_BEGIN

// Sum over a row of term(i, part), lanes in fp32, the parts of long rows added in double.
template <class Term>
double row_sum(int64_t n, const Term& term) {
    constexpr int64_t kPart = 4096;
    double total = 0;
    for (int64_t begin = 0; begin < n; begin += kPart)
        total += static_cast<double>(sum_of(joined_run(
            n - begin < kPart ? n - begin : kPart, Vec{},
            [&](int64_t i, auto part) { return term(begin + i, part); },
            [](Vec a, Vec b) { return a + b; })));
    return total;
}

template <class T>
void rms_norm(Rows x, NormWeight weight, float eps, Rows y, float* rstd, int64_t rows,
              int64_t hidden) {
    const T* const w = static_cast<const T*>(weight.data);
    for (int64_t row = 0; row < rows; ++row) {
        const T* const in = static_cast<const T*>(x.data) + row * x.pitch;
        T* const out = static_cast<T*>(y.data) + row * y.pitch;
        const double squares = row_sum(hidden, [&](int64_t i, auto part) {
            const Vec value = load(in + i, part);
            return value * value;
        });
        const float mean = static_cast<float>(squares / static_cast<double>(hidden));
        const float r = 1.0f / __builtin_sqrtf(mean + eps);
        if (rstd != nullptr) rstd[row] = r;
        for_lanes(hidden, [&](int64_t i, auto part) {
            const Vec normed = load(in + i, part) * r;
            const Vec factor = load(w + i, part) + weight.offset;
            store(out + i, (weight.rounds_once ? normed : rounded_as(in, normed)) * factor, part);
        });
    }
}

template <class T>
void rms_norm_backward(Rows dy, Rows x, NormWeight weight, const float* rstd, Rows dx,
                       bool accumulate, float* weight_gradient, int64_t rows, int64_t hidden) {
    const T* const w = static_cast<const T*>(weight.data);
    for (int64_t row = 0; row < rows; ++row) {
        const T* const d = static_cast<const T*>(dy.data) + row * dy.pitch;
        const T* const in = static_cast<const T*>(x.data) + row * x.pitch;
        T* const out = static_cast<T*>(dx.data) + row * dx.pitch;
        const float r = rstd[row];
        const double dot = row_sum(hidden, [&](int64_t i, auto part) {
            return load(d + i, part) * (load(w + i, part) + weight.offset) * load(in + i, part);
        });
        const float c = static_cast<float>(dot / static_cast<double>(hidden)) * r * r;
        for_lanes(hidden, [&](int64_t i, auto part) {
            const Vec gradient = load(d + i, part);
            const Vec value = load(in + i, part);
            if (weight_gradient != nullptr) {
                const Vec sum = load(weight_gradient + i, part) + gradient * (value * r);
                store(weight_gradient + i, sum, part);
            }
            Vec result = r * (gradient * (load(w + i, part) + weight.offset) - value * c);
            if (accumulate) result += load(out + i, part);
            store(out + i, result, part);
        });
    }
}

template <class T>
void add_element_kernels(ElementKernels& kernels) {
    kernels.rms_norm = rms_norm<T>;
    kernels.rms_norm_backward = rms_norm_backward<T>;
}

GARAM_KERNELS_END

namespace garam::cpu::GARAM_ISA {

void add_rms_norm(KernelTable& table);
void add_rms_norm(KernelTable& table) {
    add_element_kernels<float>(table.f32);
    add_element_kernels<Bf16>(table.bf16);
}

}  // namespace garam::cpu::GARAM_ISA
