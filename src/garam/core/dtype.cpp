#include "garam/core/dtype.h"

namespace garam {

float16::float16(float value) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(value);
    const std::uint16_t sign = static_cast<std::uint16_t>((u >> 16) & 0x8000u);
    const std::uint32_t magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {  // NaN: keep its upper payload bits, make it quiet
        bits = static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
    } else if (magnitude >= 0x477ff000u) {  // rounds to 65536 or more
        bits = static_cast<std::uint16_t>(sign | 0x7c00u);
    } else if (magnitude >= 0x38800000u) {  // normal in binary16 (2^-14 and up)
        const std::uint32_t rebias = magnitude - 0x38000000u;
        bits = static_cast<std::uint16_t>(sign | ((rebias + 0xfffu + ((rebias >> 13) & 1u)) >> 13));
    } else {  // subnormal or zero: adding 0.5 aligns the value's ulp with 2^-24
        const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
        bits = static_cast<std::uint16_t>(sign |
                                          (std::bit_cast<std::uint32_t>(aligned) - 0x3f000000u));
    }
}

float16::operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1fu;
    const std::uint32_t mantissa = bits & 0x3ffu;
    if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in float
        const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
    }
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

}  // namespace garam
