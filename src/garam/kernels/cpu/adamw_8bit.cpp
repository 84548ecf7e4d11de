// AdamW on states of 8 bits (ops/adamw_8bit.h), block by block. Every operation is rounded by
// itself (this file is compiled without fused products), so that all instruction sets and cards
// give the same bits. The look-ups of codes are scalar and what it waits for.
#include "garam/kernels/cpu/simd.h"

GARAM_KERNELS_BEGIN

using std::uint8_t;

constexpr int64_t kBlock = 256;

Vec root_of(Vec x) {
    for (int lane = 0; lane < kLanes; ++lane)
        x[lane] = __builtin_sqrtf(x[lane]);
    return x;
}

// The cells of [-1, 1] and of [0, 1].
struct SignedCells {
    static BitVec of(Vec x) {
        const BitVec bits = bits_of<BitVec>(x);
        const IntVec cell = bits_of<IntVec>((bits & 0x7fffffffu) >> DynamicCode::kSignedShift) -
                            DynamicCode::kSignedBase;
        constexpr std::int32_t kLast = DynamicCode::kSignedCells - 1;
        IntVec within = cell < 0 ? IntVec{} : cell;
        within = within > kLast ? IntVec{} + kLast : within;
        return bits_of<BitVec>(within) + (bits >> 31) * uint32_t{DynamicCode::kSignedCells};
    }
};
struct UnsignedCells {
    static BitVec of(Vec x) {
        const IntVec cell = bits_of<IntVec>(bits_of<BitVec>(x) >> DynamicCode::kUnsignedShift) -
                            DynamicCode::kUnsignedBase;
        constexpr std::int32_t kLast = DynamicCode::kUnsignedCells - 1;
        const IntVec within = cell < 0 ? IntVec{} : cell;
        return bits_of<BitVec>(within > kLast ? IntVec{} + kLast : within);
    }
};

// Codes of x / largest.
template <class Cells>
void encode(const DynamicCode& code, const float* x, float largest, uint8_t* codes, int64_t n) {
    alignas(64) float scaled[kBlock];
    alignas(64) uint32_t cells[kBlock];
    const float divisor = largest > 0 ? largest : 1.0f;  // a block of zeros
    for_lanes(n, [&](int64_t i, auto) {
        const Vec y = load(x + i, Full{}) / divisor;
        const BitVec cell = Cells::of(y);
        store(scaled + i, y, Full{});
        __builtin_memcpy(cells + i, &cell, sizeof(cell));
    });
    for (int64_t i = 0; i < n; ++i) {
        const uint8_t first = code.first[cells[i]];
        codes[i] = static_cast<uint8_t>(first + (scaled[i] > code.above[first]));
    }
}

void block(const AdamW8bitStep& step, const DynamicCode& m_code, const DynamicCode& v_code,
           float* weight, const float* gradient, uint8_t* m_codes, uint8_t* v_codes,
           float* m_absmax, float* v_absmax, int64_t n) {
    alignas(64) float m[kBlock];
    alignas(64) float v[kBlock];
    for (int64_t i = 0; i < n; ++i) {
        m[i] = m_code.value[m_codes[i]];
        v[i] = v_code.value[v_codes[i]];
    }
    for (int64_t i = n; i < kBlock; ++i)  // what a last vector takes along
        m[i] = v[i] = 0;
    Vec m_largest{};
    Vec v_largest{};
    for_lanes(n, [&](int64_t i, auto part) {
        const Vec g = load(gradient + i, part) * step.gradient_scale;
        const Vec first = load(m + i, Full{}) * *m_absmax * step.beta1 + g * step.one_minus_beta1;
        const Vec second =
            load(v + i, Full{}) * *v_absmax * step.beta2 + g * step.one_minus_beta2 * g;
        const Vec moved =
            load(weight + i, part) + step.step_size * (first / (root_of(second) + step.epsilon));
        store(weight + i, moved * step.decay, part);
        store(m + i, first, Full{});
        store(v + i, second, Full{});
        m_largest = max_of(m_largest, first < 0 ? -first : first);
        v_largest = max_of(v_largest, second);
    });
    *m_absmax = max_of(m_largest);
    *v_absmax = max_of(v_largest);
    encode<SignedCells>(m_code, m, *m_absmax, m_codes, n);
    encode<UnsignedCells>(v_code, v, *v_absmax, v_codes, n);
    for (int64_t i = 0; i < n; ++i) {
        const bool flips = m_codes[i] == DynamicCode::kSignedZero && m[i] < 0;
        m_codes[i] = static_cast<uint8_t>(m_codes[i] - flips);
        const bool vanishes =
            v_codes[i] == 0 && (v[i] > 0 || m_codes[i] != DynamicCode::kSignedZero);
        v_codes[i] = static_cast<uint8_t>(v_codes[i] + vanishes);
    }
}

void adamw_8bit(const AdamW8bitStep& step, const DynamicCode& m_code, const DynamicCode& v_code,
                float* weight, const float* gradient, uint8_t* m_codes, uint8_t* v_codes,
                float* m_absmax, float* v_absmax, int64_t n) {
    for (int64_t i = 0; i < n; i += kBlock)
        block(step, m_code, v_code, weight + i, gradient + i, m_codes + i, v_codes + i,
              m_absmax + i / kBlock, v_absmax + i / kBlock, n - i < kBlock ? n - i : kBlock);
}

GARAM_KERNELS_END

namespace garam::cpu::GARAM_ISA {

void add_adamw_8bit(KernelTable& table);
void add_adamw_8bit(KernelTable& table) {
    table.adamw_8bit = adamw_8bit;
}

}  // namespace garam::cpu::GARAM_ISA
