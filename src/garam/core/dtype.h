// Element types and the two 16-bit floating-point formats.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace garam {

enum class DType : std::uint8_t { f32, f16, bf16, u8, i32, i64 };

constexpr std::size_t size_of(DType dtype) {
    switch (dtype) {
        case DType::f32:
            return 4;
        case DType::f16:
            return 2;
        case DType::bf16:
            return 2;
        case DType::u8:
            return 1;
        case DType::i32:
            return 4;
        case DType::i64:
            return 8;
    }
    return 0;
}

constexpr std::string_view name_of(DType dtype) {
    switch (dtype) {
        case DType::f32:
            return "f32";
        case DType::f16:
            return "f16";
        case DType::bf16:
            return "bf16";
        case DType::u8:
            return "u8";
        case DType::i32:
            return "i32";
        case DType::i64:
            return "i64";
    }
    return "?";
}

// bfloat16: the upper half of a float. Conversion from float rounds to nearest, ties to even; a NaN
// stays a (quiet) NaN.
struct bfloat16 {
    std::uint16_t bits = 0;

    bfloat16() = default;
    explicit bfloat16(float value) : bits(round(value)) {}
    explicit operator float() const {
        return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    }
    static bfloat16 from_bits(std::uint16_t b) {
        bfloat16 r;
        r.bits = b;
        return r;
    }

  private:
    static std::uint16_t round(float value) {
        const std::uint32_t u = std::bit_cast<std::uint32_t>(value);
        if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((u >> 16) | 0x40u);
        return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
};

// IEEE binary16. Conversion from float rounds to nearest, ties to even, with subnormals; values
// beyond 65504 become infinite.
struct float16 {
    std::uint16_t bits = 0;

    float16() = default;
    explicit float16(float value);
    explicit operator float() const;
    static float16 from_bits(std::uint16_t b) {
        float16 r;
        r.bits = b;
        return r;
    }
};

template <typename T>
struct dtype_of;
template <>
struct dtype_of<float> {
    static constexpr DType value = DType::f32;
};
template <>
struct dtype_of<float16> {
    static constexpr DType value = DType::f16;
};
template <>
struct dtype_of<bfloat16> {
    static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of<std::uint8_t> {
    static constexpr DType value = DType::u8;
};
template <>
struct dtype_of<std::int32_t> {
    static constexpr DType value = DType::i32;
};
template <>
struct dtype_of<std::int64_t> {
    static constexpr DType value = DType::i64;
};

}  // namespace garam
