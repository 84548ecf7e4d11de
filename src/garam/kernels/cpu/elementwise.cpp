// Casts, sums and copies of contiguous runs. All are bound by memory.
#include "garam/kernels/cpu/simd.h"

GARAM_KERNELS_BEGIN

template <class In, class Out>
void convert(const In* x, Out* out, int64_t n) {
    for_lanes(n, [&](int64_t i, auto part) { store(out + i, load(x + i, part), part); });
}

// binary16 to float: shift exponent and mantissa into place, then scale by 2^112 to move the bias
// from 15 to 127 (exact, subnormals included); infinities and NaN keep all exponent bits.
Vec widen_f16(HalfVec h) {
    const BitVec u = __builtin_convertvector(h, BitVec);
    const BitVec magnitude = (u & 0x7fffu) << 13;
    const BitVec finite = bits_of<BitVec>(bits_of<Vec>(magnitude) * 0x1p112f);
    const BitVec special = magnitude | 0x7f800000u;
    const BitVec value = (u & 0x7c00u) == 0x7c00u ? special : finite;
    return bits_of<Vec>(value | ((u & 0x8000u) << 16));
}

template <class T>
void from_f32(const float* x, void* out, int64_t n) {
    convert(x, static_cast<T*>(out), n);
}

template <class T>
void from_bf16(const uint16_t* x, void* out, int64_t n) {
    T* const y = static_cast<T*>(out);
    for_lanes(n, [&](int64_t i, auto part) {
        HalfVec h{};
        __builtin_memcpy(&h, x + i, sizeof(h) < std::size_t(n - i) * 2 ? sizeof(h) : (n - i) * 2);
        store(y + i, widen(h), part);
    });
}

template <class T>
void from_f16(const uint16_t* x, void* out, int64_t n) {
    T* const y = static_cast<T*>(out);
    for_lanes(n, [&](int64_t i, auto part) {
        HalfVec h{};
        __builtin_memcpy(&h, x + i, sizeof(h) < std::size_t(n - i) * 2 ? sizeof(h) : (n - i) * 2);
        store(y + i, widen_f16(h), part);
    });
}

template <class T>
void scale(const float* x, float factor, void* out, int64_t n) {
    T* const y = static_cast<T*>(out);
    for_lanes(n, [&](int64_t i, auto part) { store(y + i, load(x + i, part) * factor, part); });
}

template <class T>
void multiply(const void* x, float factor, void* out, int64_t n) {
    const T* const a = static_cast<const T*>(x);
    T* const y = static_cast<T*>(out);
    for_lanes(n, [&](int64_t i, auto part) { store(y + i, load(a + i, part) * factor, part); });
}

template <class T>
void add(const void* a, const void* b, void* out, int64_t n) {
    const T* const x = static_cast<const T*>(a);
    const T* const y = static_cast<const T*>(b);
    T* const z = static_cast<T*>(out);
    for_lanes(n, [&](int64_t i, auto part) {
        store(z + i, load(x + i, part) + load(y + i, part), part);
    });
}

template <class T>
void fill(float value, void* out, int64_t n) {
    T* const y = static_cast<T*>(out);
    const Vec v = splat(value);
    for_lanes(n, [&](int64_t i, auto part) { store(y + i, v, part); });
}

template <class T>
void add_to_f32(const void* x, float* sum, int64_t n) {
    const T* const a = static_cast<const T*>(x);
    for_lanes(n, [&](int64_t i, auto part) {
        store(sum + i, load(sum + i, part) + load(a + i, part), part);
    });
}

template <class T>
void add_product_to_f32(const void* x, float factor, float* sum, int64_t n) {
    const T* const a = static_cast<const T*>(x);
    for_lanes(n, [&](int64_t i, auto part) {
        store(sum + i, load(sum + i, part) + load(a + i, part) * factor, part);
    });
}

// Sums in double precision over half as many lanes.
template <class Term>
double sum_terms(const float* x, int64_t n, const Term& term) {
    constexpr int kWidth = kLanes / 2;
    constexpr int kChains = 4;  // additions in flight
    DoubleVec sums[kChains]{};
    int64_t i = 0;
    for (; i + kWidth * kChains <= n; i += kWidth * kChains) {
        for (int chain = 0; chain < kChains; ++chain) {
            HalfLanesVec part;
            __builtin_memcpy(&part, x + i + chain * kWidth, sizeof(part));
            sums[chain] += term(__builtin_convertvector(part, DoubleVec));
        }
    }
    double rest = 0;
    for (; i < n; ++i)
        rest += term(static_cast<double>(x[i]));
    const DoubleVec total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (int lane = 0; lane < kWidth; ++lane)
        rest += total[lane];
    return rest;
}

double sum(const float* x, int64_t n) {
    return sum_terms(x, n, [](auto value) { return value; });
}

double sum_of_squares(const float* x, int64_t n) {
    return sum_terms(x, n, [](auto value) { return value * value; });
}

template <class T>
void add_element_kernels(ElementKernels& kernels) {
    kernels.from_f32 = from_f32<T>;
    kernels.from_bf16 = from_bf16<T>;
    kernels.from_f16 = from_f16<T>;
    kernels.scale = scale<T>;
    kernels.multiply = multiply<T>;
    kernels.add = add<T>;
    kernels.fill = fill<T>;
    kernels.add_to_f32 = add_to_f32<T>;
    kernels.add_product_to_f32 = add_product_to_f32<T>;
}

GARAM_KERNELS_END

namespace garam::cpu::GARAM_ISA {

void add_elementwise(KernelTable& table);
void add_elementwise(KernelTable& table) {
    add_element_kernels<float>(table.f32);
    add_element_kernels<Bf16>(table.bf16);
    table.sum = sum;
    table.sum_of_squares = sum_of_squares;
}

}  // namespace garam::cpu::GARAM_ISA
