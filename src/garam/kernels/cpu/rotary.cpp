// Rotary embedding of one token's heads. Bound by memory.
#include "garam/kernels/cpu/simd.h"

GARAM_KERNELS_BEGIN

template <class T>
void rotary(void* x, int64_t heads, int64_t head_dim, const float* cos, const float* sin,
            int64_t half, bool inverse) {
    const float sign = inverse ? -1.0f : 1.0f;
    for (int64_t head = 0; head < heads; ++head) {
        T* const first = static_cast<T*>(x) + head * head_dim;
        T* const second = first + half;
        for_lanes(half, [&](int64_t i, auto part) {
            const Vec a = load(first + i, part);
            const Vec b = load(second + i, part);
            const Vec c = load(cos + i, part);
            const Vec s = load(sin + i, part) * sign;
            store(first + i, a * c - b * s, part);
            store(second + i, b * c + a * s, part);
        });
    }
}

GARAM_KERNELS_END

namespace garam::cpu::GARAM_ISA {

void add_rotary(KernelTable& table);
void add_rotary(KernelTable& table) {
    table.f32.rotary = rotary<float>;
    table.bf16.rotary = rotary<Bf16>;
}

}  // namespace garam::cpu::GARAM_ISA
