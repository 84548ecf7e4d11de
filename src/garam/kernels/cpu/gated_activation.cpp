// out = activation(gate) * up and its gradient. Bound by memory; one exponential an element.
#include "garam/kernels/cpu/simd.h"

GARAM_KERNELS_BEGIN

Vec sigmoid(Vec x) {
    return 1.0f / (1.0f + exp_of(-x));
}

// Each gives x * part(x), and the derivative of that from its part.
struct Silu {
    Vec part(Vec x) const { return sigmoid(x); }
    Vec slope(Vec x, Vec part) const { return part * (1.0f + x * (1.0f - part)); }
};

// (1 + tanh(u)) / 2 is the sigmoid of 2 u. Beyond kEnd that is 0 or 1 to all bits, and the cube must not
// overflow.
struct GeluTanh {
    static constexpr float kEnd = 16;
    static constexpr float kLinear = 1.5957691216f;  // 2 sqrt(2 / pi)
    static constexpr float kCubic = kLinear * 0.044715f;
    Vec part(Vec x) const {
        const Vec y = at_most(at_least(x, -kEnd), kEnd);
        return sigmoid(y * (kLinear + kCubic * (y * y)));
    }
    Vec slope(Vec x, Vec part) const {
        const Vec y = at_most(at_least(x, -kEnd), kEnd);
        return part * (1.0f + y * (kLinear + 3.0f * kCubic * (y * y)) * (1.0f - part));
    }
};

template <class T, class Activated>
void forward(const Activated& activated, const void* gate, const void* up, void* out, int64_t n) {
    const T* const g = static_cast<const T*>(gate);
    const T* const u = static_cast<const T*>(up);
    T* const y = static_cast<T*>(out);
    for_lanes(n, [&](int64_t i, auto part) {
        const Vec x = load(g + i, part);
        store(y + i, x * activated.part(x) * load(u + i, part), part);
    });
}

template <class T, class Activated>
void backward(const Activated& activated, const void* dout, const void* gate, const void* up,
              void* dgate, void* dup, int64_t n) {
    const T* const d = static_cast<const T*>(dout);
    const T* const g = static_cast<const T*>(gate);
    const T* const u = static_cast<const T*>(up);
    T* const dg = static_cast<T*>(dgate);
    T* const du = static_cast<T*>(dup);
    for_lanes(n, [&](int64_t i, auto part) {
        const Vec dy = load(d + i, part);
        const Vec x = load(g + i, part);
        const Vec s = activated.part(x);
        const Vec up_value = load(u + i, part);
        store(dg + i, dy * up_value * activated.slope(x, s), part);
        store(du + i, dy * (x * s), part);
    });
}

template <class T>
void gated_activation(Activation activation, const void* gate, const void* up, void* out,
                      int64_t n) {
    if (activation == Activation::gelu_tanh)
        forward<T>(GeluTanh{}, gate, up, out, n);
    else
        forward<T>(Silu{}, gate, up, out, n);
}

template <class T>
void gated_activation_backward(Activation activation, const void* dout, const void* gate,
                               const void* up, void* dgate, void* dup, int64_t n) {
    if (activation == Activation::gelu_tanh)
        backward<T>(GeluTanh{}, dout, gate, up, dgate, dup, n);
    else
        backward<T>(Silu{}, dout, gate, up, dgate, dup, n);
}

template <class T>
void add_element_kernels(ElementKernels& kernels) {
    kernels.gated_activation = gated_activation<T>;
    kernels.gated_activation_backward = gated_activation_backward<T>;
}

GARAM_KERNELS_END

namespace garam::cpu::GARAM_ISA {

void add_gated_activation(KernelTable& table);
void add_gated_activation(KernelTable& table) {
    add_element_kernels<float>(table.f32);
    add_element_kernels<Bf16>(table.bf16);
}

}  // namespace garam::cpu::GARAM_ISA
