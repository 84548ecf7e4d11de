// DoRA's columns scaled, forward and backward. Bound by memory.
#include "garam/kernels/cpu/simd.h"

GARAM_KERNELS_BEGIN

template <class T>
void scale_columns(const void* x, const float* factors, float offset, const void* bias,
                   const void* addend, void* out, int64_t n) {
    const T* const from = static_cast<const T*>(x);
    const T* const first = static_cast<const T*>(bias);
    const T* const second = static_cast<const T*>(addend);
    T* const y = static_cast<T*>(out);
    for_lanes(n, [&](int64_t i, auto part) {
        Vec value = load(from + i, part) * (load(factors + i, part) + offset);
        if (first != nullptr) value = value + load(first + i, part);
        if (second != nullptr) value = value + load(second + i, part);
        store(y + i, value, part);
    });
}

template <class T>
void dora_backward(const void* dy, const void* z, const float* scale, void* dz, float* sums,
                   int64_t n) {
    const T* const gradient = static_cast<const T*>(dy);
    const T* const output = static_cast<const T*>(z);
    T* const to = static_cast<T*>(dz);
    for_lanes(n, [&](int64_t i, auto part) {
        const Vec d = load(gradient + i, part);
        store(sums + i, load(sums + i, part) + d * load(output + i, part), part);
        store(to + i, d * load(scale + i, part), part);
    });
}

template <class T>
void add_dora_kernels(ElementKernels& kernels) {
    kernels.scale_columns = scale_columns<T>;
    kernels.dora_backward = dora_backward<T>;
}

GARAM_KERNELS_END

namespace garam::cpu::GARAM_ISA {

void add_dora(KernelTable& table);
void add_dora(KernelTable& table) {
    add_dora_kernels<float>(table.f32);
    add_dora_kernels<Bf16>(table.bf16);
}

}  // namespace garam::cpu::GARAM_ISA
