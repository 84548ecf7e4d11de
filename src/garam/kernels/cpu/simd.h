// Vectors of floats as wide as the instruction set's registers, for the kernel sources only.
//
// GCC's and Clang's vector types: the same source gives SSE2, AVX2, AVX-512 or NEON. `Full` and
// `Tail` say how many lanes of a vector exist in memory; for_lanes walks a run in full vectors and
// one tail, so that a kernel is written once. bf16 stores round to nearest, ties to even.
#pragma once

#include "garam/kernels/cpu/kernel_table.h"

// Everything of a kernel source lies in the namespace of its instruction set.
#define GARAM_KERNELS_BEGIN           \
    namespace garam::cpu::GARAM_ISA { \
    namespace {
#define GARAM_KERNELS_END \
    }                     \
    }

GARAM_KERNELS_BEGIN

using std::int64_t;
using std::uint16_t;
using std::uint32_t;
using std::uint64_t;

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef std::int32_t IntVec __attribute__((vector_size(kLanes * 4)));
typedef uint32_t BitVec __attribute__((vector_size(kLanes * 4)));
typedef uint16_t HalfVec __attribute__((vector_size(kLanes * 2)));
typedef float HalfLanesVec __attribute__((vector_size(kLanes * 2)));
typedef double DoubleVec __attribute__((vector_size(kLanes * 4)));  // kLanes / 2 of them

// An element of a bf16 array.
struct Bf16 {
    uint16_t bits;
};

struct Full {};
struct Tail {
    int64_t lanes;
};

template <class To, class From>
inline To bits_of(const From& from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    __builtin_memcpy(&to, &from, sizeof(To));
    return to;
}

inline Vec splat(float x) {
    return Vec{} + x;
}

inline Vec widen(HalfVec h) {
    return bits_of<Vec>(__builtin_convertvector(h, BitVec) << 16);
}
inline HalfVec narrow(Vec x) {
    const BitVec u = bits_of<BitVec>(x);
    const BitVec rounded = (u + (0x7fffu + ((u >> 16) & 1u))) >> 16;
    const BitVec quiet_nan = (u >> 16) | 0x40u;
    return __builtin_convertvector(x == x ? rounded : quiet_nan, HalfVec);
}

inline float widen(Bf16 x) {
    return bits_of<float>(uint32_t{x.bits} << 16);
}
inline float widen(float x) {
    return x;
}

inline Vec load(const float* p, Full) {
    Vec x;
    __builtin_memcpy(&x, p, sizeof(x));
    return x;
}
inline Vec load(const Bf16* p, Full) {
    HalfVec h;
    __builtin_memcpy(&h, p, sizeof(h));
    return widen(h);
}
inline Vec load(const float* p, Tail tail) {
    Vec x{};
    for (int64_t i = 0; i < tail.lanes; ++i)
        x[i] = p[i];
    return x;
}
inline Vec load(const Bf16* p, Tail tail) {
    HalfVec h{};
    for (int64_t i = 0; i < tail.lanes; ++i)
        h[i] = p[i].bits;
    return widen(h);
}
inline void store(float* p, Vec x, Full) {
    __builtin_memcpy(p, &x, sizeof(x));
}
inline void store(Bf16* p, Vec x, Full) {
    const HalfVec h = narrow(x);
    __builtin_memcpy(p, &h, sizeof(h));
}
inline void store(float* p, Vec x, Tail tail) {
    for (int64_t i = 0; i < tail.lanes; ++i)
        p[i] = x[i];
}
inline void store(Bf16* p, Vec x, Tail tail) {
    const HalfVec h = narrow(x);
    for (int64_t i = 0; i < tail.lanes; ++i)
        p[i].bits = h[i];
}

// x as the element type would hold it.
inline Vec rounded_as(const float*, Vec x) {
    return x;
}
inline Vec rounded_as(const Bf16*, Vec x) {
    return widen(narrow(x));
}

template <class Body>
inline void for_lanes(int64_t n, const Body& body) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
        body(i, Full{});
    if (i < n) body(i, Tail{n - i});
}

inline Vec max_of(Vec a, Vec b) {
    return a > b ? a : b;
}

// Always the same order of additions.
inline float sum_of(Vec x) {
    float lanes[kLanes];
    __builtin_memcpy(lanes, &x, sizeof(x));
    for (int width = kLanes / 2; width > 0; width /= 2)
        for (int i = 0; i < width; ++i)
            lanes[i] += lanes[i + width];
    return lanes[0];
}
inline float max_of(Vec x) {
    float lanes[kLanes];
    __builtin_memcpy(lanes, &x, sizeof(x));
    for (int width = kLanes / 2; width > 0; width /= 2)
        for (int i = 0; i < width; ++i)
            lanes[i] = lanes[i] > lanes[i + width] ? lanes[i] : lanes[i + width];
    return lanes[0];
}

// exp(x) to 2 units in the last place; 0 below -87.3 (where results would be subnormal), the value
// at 88.3 above it; NaN stays NaN. exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2, and
// the Taylor polynomial of degree 7 of exp(r), whose remainder is below r^8 / 8! = 5e-9.
inline Vec exp_of(Vec x) {
    const Vec lowest = splat(-87.3f);
    const Vec highest = splat(88.3f);
    Vec y = x < lowest ? lowest : x;
    y = y > highest ? highest : y;
    const Vec magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    const Vec shifted = y * 1.44269504f + magic;
    const Vec n = shifted - magic;
    // ln 2 in two parts, the first with few enough bits that n * part is exact.
    Vec r = y - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    Vec p = splat(1.0f / 5040);
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const IntVec exponent = bits_of<IntVec>(shifted) << 23;  // the integer lies in the low bits
    const Vec scaled = bits_of<Vec>(bits_of<IntVec>(p) + exponent);
    const Vec result = x < lowest ? Vec{} : scaled;
    return x == x ? result : x;
}

GARAM_KERNELS_END
