// Vectors of floats as wide as the instruction set's registers, for the kernel sources only.
//
// GCC's and Clang's vector types: the same source gives SSE2, AVX2, AVX-512 or NEON. `Full` and
// `Tail` say how many lanes of a vector exist in memory; for_lanes walks a run in full vectors and
// one tail, so that a kernel is written once. bf16 stores round to nearest, ties to even.
#pragma once

#include "garam/kernels/cpu/kernel_table.h"

// The intrinsics are forced inline into their callers, so nothing of this header can be merged with
// another instruction set's copy.
#if defined(__x86_64__)
#include <immintrin.h>
#endif

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

// x - 0 is x in every bit, so only the broadcast is left (0 + x would turn -0 into 0).
inline Vec splat(float x) {
    return x - Vec{};
}

inline Vec widen(HalfVec h) {
    return bits_of<Vec>(__builtin_convertvector(h, BitVec) << 16);
}
// The bf16 nearest to x in the upper half of each lane; the lower half means nothing.
inline BitVec rounded_to_bf16(Vec x) {
    const BitVec u = bits_of<BitVec>(x);
    const BitVec rounded = u + (0x7fffu + ((u >> 16) & 1u));
    const BitVec quiet_nan = u | 0x400000u;
    return x == x ? rounded : quiet_nan;
}
inline HalfVec narrow(Vec x) {
    return __builtin_convertvector(rounded_to_bf16(x) >> 16, HalfVec);
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
    return bits_of<Vec>(rounded_to_bf16(x) & 0xffff0000u);
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

// Joins term(i, part) over a run into four chains, so that one does not wait for another.
template <class Term, class Join>
inline Vec joined_run(int64_t n, Vec start, const Term& term, const Join& join) {
    constexpr int64_t kChains = 4;
    Vec chains[kChains] = {start, start, start, start};
    int64_t i = 0;
    for (; i + kChains * kLanes <= n; i += kChains * kLanes)
        for (int64_t chain = 0; chain < kChains; ++chain)
            chains[chain] = join(chains[chain], term(i + chain * kLanes, Full{}));
    for_lanes(n - i, [&](int64_t j, auto part) { chains[0] = join(chains[0], term(i + j, part)); });
    return join(join(chains[0], chains[1]), join(chains[2], chains[3]));
}

// Joins each lane with the one `kDistance` away, then half as far, and so on: always the same order.
template <int kDistance, class Join>
inline float joined_lanes(Vec x, const Join& join) {
    IntVec partner{};
    for (int lane = 0; lane < kLanes; ++lane)
        partner[lane] = lane ^ kDistance;
    const Vec y = join(x, __builtin_shuffle(x, partner));
    if constexpr (kDistance == 1)
        return y[0];
    else
        return joined_lanes<kDistance / 2>(y, join);
}
inline float sum_of(Vec x) {
    return joined_lanes<kLanes / 2>(x, [](Vec a, Vec b) { return a + b; });
}
inline float max_of(Vec x) {
    return joined_lanes<kLanes / 2>(x, [](Vec a, Vec b) { return max_of(a, b); });
}

// x, but no less than / no more than `bound`; NaN stays NaN. One instruction on x86, whose maximum
// gives its second operand when either is NaN (the forms with a mask only because the plain ones warn
// in GCC 12).
inline Vec at_least(Vec x, float bound) {
#if defined(__AVX512F__)
    return _mm512_maskz_max_ps(0xffff, splat(bound), x);
#elif defined(__AVX2__)
    return _mm256_max_ps(splat(bound), x);
#elif defined(__x86_64__)
    return _mm_max_ps(splat(bound), x);
#else
    return x < bound ? splat(bound) : x;
#endif
}
inline Vec at_most(Vec x, float bound) {
#if defined(__AVX512F__)
    return _mm512_maskz_min_ps(0xffff, splat(bound), x);
#elif defined(__AVX2__)
    return _mm256_min_ps(splat(bound), x);
#elif defined(__x86_64__)
    return _mm_min_ps(splat(bound), x);
#else
    return x > bound ? splat(bound) : x;
#endif
}

// exp(x) to 2 units in the last place; 0 below -87.7, subnormal results may be off by one of theirs,
// the value at 88.3 above it; NaN stays NaN. exp(x) = 2^n exp(r), n = round(x / ln 2),
// |r| <= ln 2 / 2; exp(r) = 1 + r + r^2 q(r), q of degree 4 fitted for the least relative error
// there, 3.7e-9 with these coefficients.
inline Vec exp_of(Vec x) {
    const Vec y = at_most(at_least(x, -88.0f), 88.3f);
    // 1.5 * 2^23: adding it rounds to an integer, which then lies in the low bits. 127 more make that
    // integer the exponent field of 2^n; it is 0, which stands for the number 0, at the lower bound.
    constexpr float kRound = 12582912.0f + 127.0f;
    const Vec shifted = y * 1.44269504f + kRound;
    const Vec n = shifted - kRound;
    // ln 2 in two parts, the first with few enough bits that n * part is exact.
    Vec r = y - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    Vec p = splat(0.0013814539f);
    p = p * r + 0.008368745f;
    p = p * r + 0.04166839f;
    p = p * r + 0.16666521f;
    p = p * r + 0.49999994f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * bits_of<Vec>(bits_of<BitVec>(shifted) << 23);
}

GARAM_KERNELS_END
