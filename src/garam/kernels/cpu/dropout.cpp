// Counter-based dropout of one row. Bound by the generator: seven rounds of two 32x32-bit products
// for eight columns.
#include "garam/kernels/cpu/simd.h"

GARAM_KERNELS_BEGIN

// Counters of many groups of eight columns side by side: 32 bits of each in a lane of 64, whose upper
// halves hold what the products leave there and mean nothing.
constexpr int kGroups = kLanes / 2;
constexpr int kColumns = 8 * kGroups;
typedef uint64_t WideVec __attribute__((vector_size(kGroups * 8)));

// Products of the lower halves (the form with a mask only because the plain one warns in GCC 12).
// The plain product of 64-bit lanes is several times slower.
inline WideVec product_of_low_halves(WideVec x, uint32_t factor) {
    const WideVec y = WideVec{} + factor;
#if defined(__AVX512F__)
    return bits_of<WideVec>(_mm512_maskz_mul_epu32(0xff, bits_of<__m512i>(x), bits_of<__m512i>(y)));
#elif defined(__AVX2__)
    return bits_of<WideVec>(_mm256_mul_epu32(bits_of<__m256i>(x), bits_of<__m256i>(y)));
#elif defined(__x86_64__)
    return bits_of<WideVec>(_mm_mul_epu32(bits_of<__m128i>(x), bits_of<__m128i>(y)));
#else
    return (x & 0xffffffffu) * y;
#endif
}

// Words of 8 * kGroups neighbouring columns, in their order: two columns a word.
struct Words {
    BitVec first, second;
};

// Philox-4x32-7 (core/philox.h) of counters {group, c1, c2, c3}, group + 1, …
inline Words philox_words(uint32_t group, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t key) {
    constexpr uint64_t kLow = 0xffffffffu;
    WideVec x0{};
    for (int lane = 0; lane < kGroups; ++lane)
        x0[lane] = group + static_cast<uint32_t>(lane);
    WideVec x1 = WideVec{} + c1;
    WideVec x2 = WideVec{} + c2;
    WideVec x3 = WideVec{} + c3;
    uint32_t key0 = static_cast<uint32_t>(key);
    uint32_t key1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 7; ++round) {
        const WideVec p0 = product_of_low_halves(x0, 0xD2511F53u);
        const WideVec p1 = product_of_low_halves(x2, 0xCD9E8D57u);
        x0 = (p1 >> 32) ^ x1 ^ uint64_t { key0 };
        x1 = p1;
        x2 = (p0 >> 32) ^ x3 ^ uint64_t { key1 };
        x3 = p0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    const WideVec low = (x0 & kLow) | (x1 << 32);   // words 0 and 1 of each group
    const WideVec high = (x2 & kLow) | (x3 << 32);  // words 2 and 3
    WideVec begin{}, end{};
    for (int lane = 0; lane < kGroups; ++lane) {
        const uint64_t from = static_cast<uint64_t>(lane % 2 == 0 ? lane / 2 : kGroups + lane / 2);
        begin[lane] = from;
        end[lane] = from + kGroups / 2;
    }
    return {bits_of<BitVec>(__builtin_shuffle(low, high, begin)),
            bits_of<BitVec>(__builtin_shuffle(low, high, end))};
}

template <class T>
void dropout(const DropoutRow& row, const void* x, void* y, int64_t n, bool accumulate) {
    const T* const in = static_cast<const T*>(x);
    T* const out = static_cast<T*>(y);
    const auto mask = [&](int64_t i, HalfVec bits, auto part) {
        Vec result = load(in + i, part) * row.factor;
        result = __builtin_convertvector(bits, BitVec) >= row.threshold ? result : Vec{};
        if (accumulate) result += load(out + i, part);
        store(out + i, result, part);
    };
    constexpr int kVectors = kColumns / kLanes;
    for (int64_t begin = 0; begin < n; begin += kColumns) {
        const Words words = philox_words(static_cast<uint32_t>(begin / 8), row.position,
                                         row.sample_low, row.sample_high_xor_step, row.key);
        HalfVec bits[kVectors];
        static_assert(sizeof(bits) == sizeof(words));
        __builtin_memcpy(bits, &words, sizeof(bits));
        const int64_t left = n - begin;
        for (int i = 0; i < kVectors; ++i) {
            const int64_t from = i * kLanes;
            if (from + kLanes <= left)
                mask(begin + from, bits[i], Full{});
            else if (from < left)
                mask(begin + from, bits[i], Tail{left - from});
        }
    }
}

GARAM_KERNELS_END

namespace garam::cpu::GARAM_ISA {

void add_dropout(KernelTable& table);
void add_dropout(KernelTable& table) {
    table.f32.dropout = dropout<float>;
    table.bf16.dropout = dropout<Bf16>;
}

}  // namespace garam::cpu::GARAM_ISA
