// Counter-based dropout of one row. Bound by the generator: ten rounds of two 32x32-bit products
// for four columns.
#include "garam/kernels/cpu/simd.h"

GARAM_KERNELS_BEGIN

// Counters of many groups of four columns side by side; each lane holds 32 bits in 64.
constexpr int kGroups = kLanes / 2;
constexpr int kColumns = 4 * kGroups;
typedef uint64_t WideVec __attribute__((vector_size(kGroups * 8)));
typedef uint32_t WordVec __attribute__((vector_size(kGroups * 4)));

// Philox-4x32-10 (core/philox.h) of counters {group + lane, c1, c2, c3}; word w of lane g goes to
// words[4 g + w].
void philox_words(uint32_t group, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t key,
                  uint32_t* words) {
    constexpr uint64_t kLow = 0xffffffffu;
    WideVec x0{};
    for (int lane = 0; lane < kGroups; ++lane)
        x0[lane] = group + static_cast<uint32_t>(lane);
    WideVec x1 = WideVec{} + c1;
    WideVec x2 = WideVec{} + c2;
    WideVec x3 = WideVec{} + c3;
    uint32_t key0 = static_cast<uint32_t>(key);
    uint32_t key1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        const WideVec p0 = x0 * uint64_t{0xD2511F53u};
        const WideVec p1 = x2 * uint64_t{0xCD9E8D57u};
        x0 = (p1 >> 32) ^ x1 ^ uint64_t { key0 };
        x1 = p1 & kLow;
        x2 = (p0 >> 32) ^ x3 ^ uint64_t { key1 };
        x3 = p0 & kLow;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    for (int lane = 0; lane < kGroups; ++lane) {
        words[4 * lane] = static_cast<uint32_t>(x0[lane]);
        words[4 * lane + 1] = static_cast<uint32_t>(x1[lane]);
        words[4 * lane + 2] = static_cast<uint32_t>(x2[lane]);
        words[4 * lane + 3] = static_cast<uint32_t>(x3[lane]);
    }
}

template <class T>
void dropout(const DropoutRow& row, const void* x, void* y, int64_t n, bool accumulate) {
    const T* const in = static_cast<const T*>(x);
    T* const out = static_cast<T*>(y);
    uint32_t words[kColumns];
    for (int64_t begin = 0; begin < n; begin += kColumns) {
        philox_words(static_cast<uint32_t>(begin / 4), row.position, row.sample_low,
                     row.sample_high_xor_step, row.key, words);
        for_lanes(n - begin < kColumns ? n - begin : kColumns, [&](int64_t i, auto part) {
            BitVec word;
            __builtin_memcpy(&word, words + i, sizeof(word));
            Vec result = load(in + begin + i, part) * row.factor;
            result = (word >> 8) >= row.threshold ? result : Vec{};
            if (accumulate) result += load(out + begin + i, part);
            store(out + begin + i, result, part);
        });
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
