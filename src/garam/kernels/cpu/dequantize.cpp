// Values of quantised matrices (quant/quantized_matrix.h), rounded as quant/ rounds them on the host: this source is
// compiled without fused products and sums.
//
// Of 4-bit codes the 16 values of a block are made once and looked up, a register of codes at a time.
#include "garam/kernels/cpu/gguf_groups.h"

GARAM_KERNELS_BEGIN

// Steps of whole bytes: the first of a byte's two codes is in its high nibble.
template <class T>
struct CodeTable;

template <>
struct CodeTable<float> {
    static constexpr int64_t kStep = kLanes;
    Table16 values;

    CodeTable(const float* table, float scale) : values(table, scale) {}

    void decode(const uint8_t* codes, float* out) const {
        BitVec words{};  // the high bits of a word are not looked at
#if defined(__AVX512F__)
        const __m512i x = _mm512_maskz_cvtepu8_epi64(
            0xff, _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
        words = (BitVec)_mm512_or_si512(_mm512_maskz_srli_epi64(0xff, x, 4),
                                        _mm512_maskz_slli_epi64(0xff, x, 32));
#elif defined(__AVX2__)
        const __m256i x = _mm256_cvtepu8_epi64(_mm_loadu_si32(codes));
        words = (BitVec)_mm256_or_si256(_mm256_srli_epi64(x, 4), _mm256_slli_epi64(x, 32));
#else
        for (int i = 0; i < kLanes; ++i)
            words[i] = i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15u;
#endif
        store(out, values.at(words), Full{});
    }
};

template <>
struct CodeTable<Bf16> {
#if defined(__AVX512F__)
    static constexpr int64_t kStep = 32;
    BitVec values;  // in the upper halves

    CodeTable(const float* table, float scale)
        : values(rounded_to_bf16(load(table, Full{}) * scale)) {}

    void decode(const uint8_t* codes, Bf16* out) const {
        const BitVec x = (BitVec)_mm512_maskz_cvtepu8_epi32(
            0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
        // Five bits of a word say which of 32 halves: the code, and 1 for the upper one.
        const BitVec halves = x >> 3 | x << 17 | 0x10001u;
        _mm512_storeu_si512(
            out, _mm512_maskz_permutexvar_epi16(~__mmask32{0}, (__m512i)halves, (__m512i)values));
    }
#else
    uint16_t values[16];

    CodeTable(const float* table, float scale) {
        for (int i = 0; i < 16; i += kLanes) {
            const HalfVec h = narrow(load(table + i, Full{}) * scale);
            __builtin_memcpy(values + i, &h, sizeof(h));
        }
#if defined(__AVX2__)
        const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values));
        const __m256i apart =
            _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15, 0, 2, 4, 6, 8,
                             10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
        const __m256i bytes = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(words, apart), 0xd8);
        low_ = _mm256_permute4x64_epi64(bytes, 0x44);
        high_ = _mm256_permute4x64_epi64(bytes, 0xee);
#endif
    }
#if defined(__AVX2__)
    static constexpr int64_t kStep = 32;
    void decode(const uint8_t* codes, Bf16* out) const {
        const __m128i nibble = _mm_set1_epi8(15);
        const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
        const __m128i first = _mm_and_si128(_mm_srli_epi16(x, 4), nibble);
        const __m128i second = _mm_and_si128(x, nibble);
        const __m256i each =
            _mm256_set_m128i(_mm_unpackhi_epi8(first, second), _mm_unpacklo_epi8(first, second));
        const __m256i low = _mm256_shuffle_epi8(low_, each);
        const __m256i high = _mm256_shuffle_epi8(high_, each);
        const __m256i even = _mm256_unpacklo_epi8(low, high);  // elements 0 … 7 and 16 … 23
        const __m256i odd = _mm256_unpackhi_epi8(low, high);
        __m256i* const to = reinterpret_cast<__m256i*>(out);
        _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
        _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
    }

  private:
    __m256i low_, high_;  // bytes of the values
#else
    static constexpr int64_t kStep = 2;
    void decode(const uint8_t* codes, Bf16* out) const {
        out[0].bits = values[codes[0] >> 4];
        out[1].bits = values[codes[0] & 15u];
    }
#endif
#endif
};

float scale_of(const CodedMatrix& x, int64_t block) {
    if (x.nested_absmax == nullptr) return static_cast<const float*>(x.absmax)[block];
    const float value = x.map[static_cast<const uint8_t*>(x.absmax)[block]];
    return value * x.nested_absmax[block >> x.nested_shift] + x.offset;
}

// Elements [at, end) of one block.
template <class T>
void decode_edge(const CodedMatrix& x, float scale, int64_t at, int64_t end, T* out) {
    T values[16];
    for (int i = 0; i < 16; i += kLanes)
        store(values + i, load(x.table + i, Full{}) * scale, Full{});
    const uint8_t* const codes = static_cast<const uint8_t*>(x.codes);
    for (; at < end; ++at)
        *out++ = values[codes[at / 2] >> (at % 2 == 0 ? 4 : 0) & 15];
}

// Floor: codes read, values written.
template <class T>
void decode_four_bit(const CodedMatrix& matrix, int64_t first, int64_t count, int64_t ahead,
                     T* out) {
    using Table = CodeTable<T>;
    const CodedMatrix x = matrix;  // which stores to `out` cannot change
    const uint8_t* const codes = static_cast<const uint8_t*>(x.codes);
    const int64_t end = first + count;
    const int64_t scale_bytes = x.nested_absmax == nullptr ? 4 : 1;
    __builtin_prefetch(static_cast<const uint8_t*>(x.absmax) +
                       ((first + ahead) >> x.block_shift) * scale_bytes);
    for (int64_t at = first; at < end;) {
        if (x.block_shift == 6 && at % 64 == 0) {  // the usual case, with little but the look-ups
            for (; at + 64 <= end; at += 64, out += 64) {
                const uint8_t* const from = codes + (at >> 1);
                __builtin_prefetch(from + (ahead >> 1));
                const Table table(x.table, scale_of(x, at >> 6));
#pragma GCC unroll 4
                for (int64_t i = 0; i < 64; i += Table::kStep)
                    table.decode(from + i / 2, out + i);
            }
            if (at == end) return;
        }
        const int64_t block = at >> x.block_shift;
        const int64_t next = (block + 1) << x.block_shift;
        const int64_t limit = next < end ? next : end;
        const float scale = scale_of(x, block);
        __builtin_prefetch(codes + ((at + ahead) >> 1));
        if (at % 2 != 0) {
            decode_edge(x, scale, at, at + 1, out);
            ++at;
            ++out;
        }
        const Table table(x.table, scale);
        for (; at + Table::kStep <= limit; at += Table::kStep, out += Table::kStep)
            table.decode(codes + (at >> 1), out);
        if (at < limit) decode_edge(x, scale, at, limit, out);
        out += limit - at;
        at = limit;
    }
}

template <class Format, class T>
void decode_groups(const CodedMatrix& x, int64_t first, int64_t count, int64_t ahead, T* out) {
    constexpr int64_t kGroups = Format::kElements / kGroup;
    const uint8_t* const codes = static_cast<const uint8_t*>(x.codes);
    const int64_t end = first + count;
    for (int64_t at = first; at < end;) {
        const int64_t group = at / kGroup;
        const int64_t skipped = at % kGroup;
        const int64_t left = end - at;
        const int64_t taken = kGroup - skipped < left ? kGroup - skipped : left;
        __builtin_prefetch(codes + (at + ahead) / Format::kElements * Format::kBytes);
        const uint8_t* const from = codes + group / kGroups * Format::kBytes;
        const int number = static_cast<int>(group % kGroups);
        if (taken == kGroup) {
            Format::decode(from, number, [&](int i, Vec some) { store(out + i, some, Full{}); });
        } else {
            T values[kGroup];
            Format::decode(from, number, [&](int i, Vec some) { store(values + i, some, Full{}); });
            __builtin_memcpy(out, values + skipped, static_cast<std::size_t>(taken) * sizeof(T));
        }
        out += taken;
        at += taken;
    }
}

template <class T>
void decode(const CodedMatrix& x, int64_t first, int64_t count, int64_t ahead, void* to) {
    T* const out = static_cast<T*>(to);
    switch (x.format) {
        case QuantFormat::nf4:
        case QuantFormat::fp4:
            return decode_four_bit(x, first, count, ahead, out);
        case QuantFormat::q8_0:
            return decode_groups<Q8_0>(x, first, count, ahead, out);
        case QuantFormat::q4_0:
            return decode_groups<Q4_0>(x, first, count, ahead, out);
        case QuantFormat::q4_1:
            return decode_groups<Q4_1>(x, first, count, ahead, out);
        case QuantFormat::q5_0:
            return decode_groups<Q5_0>(x, first, count, ahead, out);
        case QuantFormat::q5_1:
            return decode_groups<Q5_1>(x, first, count, ahead, out);
        case QuantFormat::iq4_nl:
            return decode_groups<Iq4Nl>(x, first, count, ahead, out);
        case QuantFormat::q4_k:
            return decode_groups<Q4K>(x, first, count, ahead, out);
        case QuantFormat::q5_k:
            return decode_groups<Q5K>(x, first, count, ahead, out);
        case QuantFormat::q6_k:
            return decode_groups<Q6K>(x, first, count, ahead, out);
        case QuantFormat::iq4_xs:
            return decode_groups<Iq4Xs>(x, first, count, ahead, out);
    }
}

GARAM_KERNELS_END

namespace garam::cpu::GARAM_ISA {

void add_dequantize(KernelTable& table);
void add_dequantize(KernelTable& table) {
    table.f32.decode = decode<float>;
    table.bf16.decode = decode<Bf16>;
}

}  // namespace garam::cpu::GARAM_ISA
