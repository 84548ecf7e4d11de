#include "garam/quant/four_bit.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <string>

#include "garam/core/error.h"
#include "garam/core/parallel.h"
#include "garam/quant/dynamic_map.h"

namespace garam {
namespace {

constexpr std::int64_t kLeastBlock = 32;
constexpr std::int64_t kLargestBlock = 4096;
// Elements that one core takes at a time; a multiple of every block.
constexpr std::int64_t kGrain = 64 * 1024;
// Values coded at a time, within the first-level cache; divides by no block smaller than itself.
constexpr std::int64_t kPiece = 1024;
constexpr std::int32_t kInfinity = 0x7f800000;
constexpr float kLeastScale = 1e-38f;

constexpr std::array<float, 16> kNf4 = {-1.0f,
                                        -0.6961928009986877f,
                                        -0.5250730514526367f,
                                        -0.39491748809814453f,
                                        -0.28444138169288635f,
                                        -0.18477343022823334f,
                                        -0.09105003625154495f,
                                        0.0f,
                                        0.07958029955625534f,
                                        0.16093020141124725f,
                                        0.24611230194568634f,
                                        0.33791524171829224f,
                                        0.44070982933044434f,
                                        0.5626170039176941f,
                                        0.7229568362236023f,
                                        1.0f};
constexpr std::array<float, 16> kFp4 = {
    0.0f,          0.0625f / 12.0f,  8.0f / 12.0f,  1.0f,
    4.0f / 12.0f,  6.0f / 12.0f,     2.0f / 12.0f,  3.0f / 12.0f,
    0.0f,          -0.0625f / 12.0f, -8.0f / 12.0f, -1.0f,
    -4.0f / 12.0f, -6.0f / 12.0f,    -2.0f / 12.0f, -3.0f / 12.0f};

// FP4's values ascending, and their codes.
constexpr std::array<std::uint8_t, 16> kFp4Order = {11, 10, 13, 12, 15, 14, 9, 0,
                                                    8,  1,  6,  7,  4,  5,  2, 3};

using Thresholds = std::array<float, 15>;
constexpr Thresholds thresholds_of(QuantFormat format) {
    Thresholds thresholds{};
    for (std::size_t i = 0; i < thresholds.size(); ++i) {
        thresholds[i] = format == QuantFormat::nf4
                            ? (kNf4[i] + kNf4[i + 1]) / 2.0f
                            : (kFp4[kFp4Order[i]] + kFp4[kFp4Order[i + 1]]) / 2.0f;
    }
    return thresholds;
}

float value_of(float x) {
    return x;
}
float value_of(bfloat16 x) {
    return static_cast<float>(x);
}

// Bits of the largest magnitude as f32; those of NaN are above infinity's.
std::int32_t largest_magnitude(const float* values, std::int64_t count) {
    std::int32_t largest = 0;
    for (std::int64_t i = 0; i < count; ++i)
        largest = std::max(largest, std::bit_cast<std::int32_t>(values[i]) & 0x7fffffff);
    return largest;
}
std::int32_t largest_magnitude(const bfloat16* values, std::int64_t count) {
    std::int16_t largest = 0;
    for (std::int64_t i = 0; i < count; ++i)
        largest = std::max(largest, static_cast<std::int16_t>(values[i].bits & 0x7fff));
    return std::int32_t{largest} << 16;
}

// The code of the least value, and what it grows by at each threshold that a value is above.
struct CodeSteps {
    std::int16_t first = 0;
    std::array<std::int16_t, 15> step{};
};
constexpr CodeSteps steps_of(QuantFormat format) {
    CodeSteps steps;
    if (format == QuantFormat::nf4) {
        steps.step.fill(1);
        return steps;
    }
    steps.first = kFp4Order[0];
    for (std::size_t i = 0; i < steps.step.size(); ++i)
        steps.step[i] = static_cast<std::int16_t>(kFp4Order[i + 1] - kFp4Order[i]);
    return steps;
}

// Comparisons instead of a search: without branches, these become vector code.
template <QuantFormat kFormat, typename T>
void find_codes(const T* values, std::int64_t count, float inverse, std::int16_t* codes) {
    constexpr Thresholds kThresholds = thresholds_of(kFormat);
    constexpr CodeSteps kSteps = steps_of(kFormat);
    for (std::int64_t i = 0; i < count; ++i) {
        const float y = value_of(values[i]) * inverse;
        std::int32_t code = kSteps.first;
        for (std::size_t t = 0; t < kThresholds.size(); ++t)
            code += y > kThresholds[t] ? kSteps.step[t] : 0;
        codes[i] = static_cast<std::int16_t>(code);
    }
}

// bf16 values numbered in their order: 0 is 0, a power of two is 128 numbers above the one before it.
std::int16_t order_of(bfloat16 x) {
    const auto magnitude = static_cast<std::int16_t>(x.bits & 0x7fff);
    const std::int16_t sign = static_cast<std::int16_t>(x.bits) < 0 ? -1 : 0;
    return static_cast<std::int16_t>((magnitude ^ sign) - sign);
}
float value_of_order(int order) {
    const int magnitude = order < 0 ? -order : order;
    return static_cast<float>(bfloat16::from_bits(
        static_cast<std::uint16_t>(order < 0 ? magnitude | 0x8000 : magnitude)));
}

// For blocks of bf16 thresholds among bf16's numbers, so that comparing takes lanes of half the width: the number of
// the largest x whose y is not above a threshold. It is searched for once for each of absmax's 128 fractions:
// powers of two move x and absmax alike and round nothing.
class Bf16Thresholds {
  public:
    using Orders = std::array<std::int16_t, 15>;
    // Below, numbers near those of thresholds are no longer normal.
    static constexpr float kLeastAbsmax = 1e-30f;

    explicit Bf16Thresholds(const Thresholds& thresholds) {
        for (std::uint16_t fraction = 0; fraction < kFractions; ++fraction) {
            const float absmax = static_cast<float>(bfloat16::from_bits(kOne | fraction));
            const float inverse = 1.0f / absmax;
            for (std::size_t t = 0; t < thresholds.size(); ++t) {
                int order = order_of(bfloat16(thresholds[t] * absmax)) + 2;
                while (value_of_order(order) * inverse > thresholds[t])
                    --order;
                orders_[fraction][t] = static_cast<std::int16_t>(order);
            }
        }
        for (std::size_t t = 0; t < thresholds.size(); ++t)
            direction_[t] = static_cast<std::int16_t>((thresholds[t] > 0) - (thresholds[t] < 0));
    }

    Orders of(float absmax) const {
        const std::uint16_t bits = bfloat16(absmax).bits;
        const std::int16_t moved = static_cast<std::int16_t>((bits & ~(kFractions - 1)) - kOne);
        Orders orders = orders_[bits % kFractions];
        for (std::size_t t = 0; t < orders.size(); ++t)
            orders[t] = static_cast<std::int16_t>(orders[t] + direction_[t] * moved);
        return orders;
    }

  private:
    static constexpr std::uint16_t kFractions = 128;
    static constexpr std::uint16_t kOne = 0x3f80;  // 1.0
    std::array<Orders, kFractions> orders_{};
    Orders direction_{};
};

template <QuantFormat kFormat>
void find_codes(const bfloat16* values, std::int64_t count, float absmax, float inverse,
                std::int16_t* codes) {
    constexpr Thresholds kThresholds = thresholds_of(kFormat);
    constexpr CodeSteps kSteps = steps_of(kFormat);
    static const Bf16Thresholds among_bf16(kThresholds);
    if (absmax < Bf16Thresholds::kLeastAbsmax)
        return find_codes<kFormat>(values, count, inverse, codes);
    const Bf16Thresholds::Orders orders = among_bf16.of(absmax);
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int16_t order = order_of(values[i]);
        std::int16_t code = kSteps.first;
        for (std::size_t t = 0; t < kThresholds.size(); ++t)
            code = static_cast<std::int16_t>(code + (order > orders[t] ? kSteps.step[t] : 0));
        codes[i] = code;
    }
}
template <QuantFormat kFormat>
void find_codes(const float* values, std::int64_t count, float /*absmax*/, float inverse,
                std::int16_t* codes) {
    find_codes<kFormat>(values, count, inverse, codes);
}

std::int16_t code_of_zero(QuantFormat format) {
    return format == QuantFormat::nf4 ? 7 : 0;
}

// `count` elements from the start of a block on, of which only the last block of the matrix may be
// short: codes (the first at a byte's high nibble) and f32 absmax of their blocks. Returns the index
// of the first value that is NaN or infinite, whose block and those after it are not written; `count`
// where all are finite.
template <typename T>
std::int64_t quantize_blocks(QuantFormat format, std::int64_t block, const T* values,
                             std::int64_t count, std::uint8_t* codes, float* absmax) {
    std::array<std::int16_t, kPiece + 1> piece;
    for (std::int64_t begin = 0; begin < count; begin += block, ++absmax) {
        const std::int64_t length = std::min(block, count - begin);
        const T* const x = values + begin;
        const std::int32_t largest = largest_magnitude(x, length);
        if (largest >= kInfinity) {
            std::int64_t bad = 0;
            while ((std::bit_cast<std::int32_t>(value_of(x[bad])) & 0x7fffffff) < kInfinity)
                ++bad;
            return begin + bad;
        }
        *absmax = std::bit_cast<float>(largest);
        const float inverse = 1.0f / std::max(*absmax, kLeastScale);
        for (std::int64_t done = 0; done < length; done += kPiece) {
            const std::int64_t n = std::min(kPiece, length - done);
            if (format == QuantFormat::nf4) {
                find_codes<QuantFormat::nf4>(x + done, n, *absmax, inverse, piece.data());
            } else {
                find_codes<QuantFormat::fp4>(x + done, n, *absmax, inverse, piece.data());
            }
            piece[static_cast<std::size_t>(n)] = code_of_zero(format);  // read where n is odd
            std::uint8_t* const bytes = codes + (begin + done) / 2;
            for (std::int64_t i = 0; i < (n + 1) / 2; ++i)
                bytes[i] = static_cast<std::uint8_t>(piece[static_cast<std::size_t>(2 * i)] << 4 |
                                                     piece[static_cast<std::size_t>(2 * i + 1)]);
        }
    }
    return count;
}

void check(const QuantizedMatrix& matrix) {
    GARAM_CHECK(is_four_bit(matrix.format) && is_four_bit_block(matrix.block),
                "a 4-bit matrix has format nf4 or fp4 and blocks of 32 to 4096");
    GARAM_CHECK(matrix.codes.dtype() == DType::u8 &&
                    matrix.codes.elements() == (matrix.elements() + 1) / 2 &&
                    matrix.absmax.elements() == matrix.blocks(),
                "codes or scales of a 4-bit matrix do not agree with its shape");
    GARAM_CHECK(matrix.absmax.dtype() == (matrix.is_double() ? DType::u8 : DType::f32),
                "absmax is f32, or u8 with double quantisation");
}

// Element i to partial sum i % kPartial; then the second half of these to the first, until there is one.
template <std::size_t kPartial, typename T>
double strided_sum(const T* values, std::int64_t count) {
    std::array<double, kPartial> sums{};
    for (std::int64_t i = 0; i < count; ++i)
        sums[static_cast<std::size_t>(i) % kPartial] += static_cast<double>(values[i]);
    for (std::size_t half = kPartial / 2; half > 0; half /= 2)
        for (std::size_t i = 0; i < half; ++i)
            sums[i] += sums[i + half];
    return sums[0];
}

// The f32 absmax of all blocks of `matrix` into its absmax, nested_absmax and offset.
void quantize_absmax(const float* absmax, const QuantizedMatrix& matrix) {
    GARAM_CHECK(
        matrix.is_double() && matrix.nested_block == kNestedBlock &&
            matrix.nested_absmax.elements() == (matrix.blocks() + kNestedBlock - 1) / kNestedBlock,
        "double quantisation is in nested blocks of 256");
    const std::int64_t blocks = matrix.blocks();
    const std::int64_t summed = kSummedElements / matrix.block;
    std::vector<double> sums;
    for (std::int64_t begin = 0; begin < blocks; begin += summed)
        sums.push_back(strided_sum<32>(absmax + begin, std::min(summed, blocks - begin)));
    const double sum = strided_sum<256>(sums.data(), static_cast<std::int64_t>(sums.size()));
    const auto offset = blocks == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(blocks));
    *matrix.offset.data<float>() = offset;

    const DynamicMap& map = signed_dynamic_map();
    auto* const codes = matrix.absmax.data<std::uint8_t>();
    auto* const nested = matrix.nested_absmax.data<float>();
    parallel_for(matrix.nested_absmax.elements(), 16, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t n = first; n < last; ++n) {
            const std::int64_t begin = n * kNestedBlock;
            const std::int64_t end = std::min(begin + kNestedBlock, blocks);
            float largest = 0;
            for (std::int64_t b = begin; b < end; ++b)
                largest = std::max(largest, std::abs(absmax[b] - offset));
            nested[n] = largest;
            const float inverse = 1.0f / std::max(largest, kLeastScale);
            for (std::int64_t b = begin; b < end; ++b)
                codes[b] = nearest_code(map, (absmax[b] - offset) * inverse);
        }
    });
}

template <typename T>
void quantize_matrix(const T* values, const QuantizedMatrix& matrix, std::string_view name) {
    check(matrix);
    std::vector<float> scales(matrix.is_double() ? static_cast<std::size_t>(matrix.blocks()) : 0);
    float* const absmax = matrix.is_double() ? scales.data() : matrix.absmax.data<float>();
    auto* const codes = matrix.codes.data<std::uint8_t>();
    constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
    std::atomic<std::int64_t> first_bad{kNone};
    parallel_for(matrix.elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
        const std::int64_t done =
            quantize_blocks(matrix.format, matrix.block, values + begin, end - begin,
                            codes + begin / 2, absmax + begin / matrix.block);
        if (done == end - begin) return;
        std::int64_t known = first_bad.load();
        while (begin + done < known && !first_bad.compare_exchange_weak(known, begin + done)) {
        }
    });
    if (first_bad.load() != kNone)
        throw Error(
            "tensor " + std::string(name) + " [" + std::to_string(matrix.rows) + ", " +
            std::to_string(matrix.columns) + "]: element " + std::to_string(first_bad.load()) +
            " is NaN or infinite and cannot be quantised; the file is damaged or its training "
            "diverged");
    if (matrix.is_double()) quantize_absmax(scales.data(), matrix);
}

template <typename T>
void dequantize_matrix(const QuantizedMatrix& matrix, std::int64_t first, std::int64_t count,
                       T* out) {
    check(matrix);
    GARAM_CHECK(0 <= first && 0 <= count && first + count <= matrix.elements(),
                "elements beyond the 4-bit matrix");
    const std::array<float, 16>& table = four_bit_table(matrix.format);
    const auto* const codes = matrix.codes.data<std::uint8_t>();
    for (std::int64_t at = first; at < first + count;) {
        const std::int64_t b = at / matrix.block;
        const std::int64_t end = std::min((b + 1) * matrix.block, first + count);
        const float scale = block_absmax(matrix, b);
        std::array<T, 16> values;  // of this block's codes
        for (std::size_t c = 0; c < values.size(); ++c)
            values[c] = static_cast<T>(table[c] * scale);
        const auto low = [&](std::int64_t i) { return values[codes[i / 2] & 15u]; };
        const auto high = [&](std::int64_t i) { return values[codes[i / 2] >> 4u]; };
        if (at % 2 == 1) {
            *out++ = low(at);
            ++at;
        }
        for (; at + 1 < end; at += 2, out += 2) {
            out[0] = high(at);
            out[1] = low(at);
        }
        if (at < end) {
            *out++ = high(at);
            ++at;
        }
    }
}

}  // namespace

const std::array<float, 16>& four_bit_table(QuantFormat format) {
    GARAM_CHECK(is_four_bit(format), "only nf4 and fp4 have a table of 16 values");
    return format == QuantFormat::nf4 ? kNf4 : kFp4;
}

bool is_four_bit_block(std::int64_t block) {
    return block >= kLeastBlock && block <= kLargestBlock && (block & (block - 1)) == 0;
}

std::string_view name_of(QuantFormat format) {
    constexpr std::array<std::string_view, 12> kNames = {"nf4",  "fp4",  "q8_0", "q4_0",
                                                         "q4_1", "q5_0", "q5_1", "iq4_nl",
                                                         "q4_k", "q5_k", "q6_k", "iq4_xs"};
    static_assert(static_cast<std::size_t>(QuantFormat::iq4_xs) + 1 == kNames.size());
    return kNames[static_cast<std::size_t>(format)];
}

void quantize_four_bit(const float* values, const QuantizedMatrix& matrix, std::string_view name) {
    quantize_matrix(values, matrix, name);
}
void quantize_four_bit(const bfloat16* values, const QuantizedMatrix& matrix,
                       std::string_view name) {
    quantize_matrix(values, matrix, name);
}

void dequantize_four_bit(const QuantizedMatrix& matrix, std::int64_t first, std::int64_t count,
                         float* out) {
    dequantize_matrix(matrix, first, count, out);
}
void dequantize_four_bit(const QuantizedMatrix& matrix, std::int64_t first, std::int64_t count,
                         bfloat16* out) {
    dequantize_matrix(matrix, first, count, out);
}

float block_absmax(const QuantizedMatrix& matrix, std::int64_t b) {
    if (!matrix.is_double()) return matrix.absmax.data<float>()[b];
    const float value = signed_dynamic_map()[matrix.absmax.data<std::uint8_t>()[b]];
    const float scaled = value * matrix.nested_absmax.data<float>()[b / matrix.nested_block];
    return scaled + *matrix.offset.data<float>();
}

FourBitBytes four_bit_bytes(std::int64_t elements, std::int64_t block, bool double_quantization) {
    const std::int64_t blocks = (elements + block - 1) / block;
    FourBitBytes bytes;
    bytes.codes = (elements + 1) / 2;
    bytes.absmax = double_quantization ? blocks : 4 * blocks;
    if (double_quantization) {
        bytes.nested_absmax = (blocks + kNestedBlock - 1) / kNestedBlock * 4;
        bytes.offset = 4;
    }
    return bytes;
}

FourBitWeight::FourBitWeight(QuantFormat format, std::int64_t rows, std::int64_t columns,
                             std::int64_t block, bool double_quantization) {
    GARAM_CHECK(is_four_bit(format) && is_four_bit_block(block) && rows > 0 && columns > 0,
                "a 4-bit matrix has format nf4 or fp4, blocks of 32 to 4096 and elements");
    const FourBitBytes bytes = four_bit_bytes(rows * columns, block, double_quantization);
    memory_.resize(static_cast<std::size_t>(bytes.total()));
    matrix_.format = format;
    matrix_.rows = rows;
    matrix_.columns = columns;
    matrix_.block = block;
    // f32 first, since they are aligned then.
    std::byte* next = memory_.data();
    const auto take = [&](DType dtype, std::int64_t size) {
        const std::int64_t count = size / static_cast<std::int64_t>(size_of(dtype));
        const Tensor tensor(next, dtype, Shape{count}, DeviceKind::cpu);
        next += size;
        return tensor;
    };
    if (double_quantization) {
        matrix_.offset = take(DType::f32, bytes.offset);
        matrix_.nested_absmax = take(DType::f32, bytes.nested_absmax);
        matrix_.absmax = take(DType::u8, bytes.absmax);
    } else {
        matrix_.absmax = take(DType::f32, bytes.absmax);
    }
    matrix_.codes = take(DType::u8, bytes.codes);
}

}  // namespace garam
