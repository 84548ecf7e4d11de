// out = silu(gate) * up and its gradient. Bound by memory; one exponential an element.
#include "garam/kernels/cpu/simd.h"

GARAM_KERNELS_BEGIN

Vec sigmoid(Vec x) {
    return 1.0f / (1.0f + exp_of(-x));
}

template <class T>
void silu_mul(const void* gate, const void* up, void* out, int64_t n) {
    const T* const g = static_cast<const T*>(gate);
    const T* const u = static_cast<const T*>(up);
    T* const y = static_cast<T*>(out);
    for_lanes(n, [&](int64_t i, auto part) {
        const Vec x = load(g + i, part);
        store(y + i, x * sigmoid(x) * load(u + i, part), part);
    });
}

template <class T>
void silu_mul_backward(const void* dout, const void* gate, const void* up, void* dgate, void* dup,
                       int64_t n) {
    const T* const d = static_cast<const T*>(dout);
    const T* const g = static_cast<const T*>(gate);
    const T* const u = static_cast<const T*>(up);
    T* const dg = static_cast<T*>(dgate);
    T* const du = static_cast<T*>(dup);
    for_lanes(n, [&](int64_t i, auto part) {
        const Vec dy = load(d + i, part);
        const Vec x = load(g + i, part);
        const Vec s = sigmoid(x);
        const Vec up_value = load(u + i, part);
        store(dg + i, dy * up_value * s * (1.0f + x * (1.0f - s)), part);
        store(du + i, dy * (x * s), part);
    });
}

template <class T>
void add_element_kernels(ElementKernels& kernels) {
    kernels.silu_mul = silu_mul<T>;
    kernels.silu_mul_backward = silu_mul_backward<T>;
}

GARAM_KERNELS_END

namespace garam::cpu::GARAM_ISA {

void add_silu_mul(KernelTable& table);
void add_silu_mul(KernelTable& table) {
    add_element_kernels<float>(table.f32);
    add_element_kernels<Bf16>(table.bf16);
}

}  // namespace garam::cpu::GARAM_ISA
