#include "garam/quant/four_bit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "garam/core/error.h"
#include "garam/core/parallel.h"
#include "garam/quant/dynamic_map.h"

// Values of bitsandbytes itself are compared in tests/io/four_bit_golden_test.cpp, where a reader is at hand.
namespace garam {
namespace {

// Reproducible numbers with the odd outlier.
std::vector<float> numbers(std::int64_t count) {
    std::vector<float> values;
    std::uint32_t state = 12345;
    for (std::int64_t i = 0; i < count; ++i) {
        state = state * 1664525u + 1013904223u;
        const float x = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f;
        values.push_back(i % 97 == 0 ? 9.0f * x : x * x * x);
    }
    return values;
}

std::uint8_t code_at(const QuantizedMatrix& matrix, std::int64_t i) {
    const std::uint8_t byte = matrix.codes.data<std::uint8_t>()[i / 2];
    return i % 2 == 0 ? byte >> 4 : byte & 15;
}

struct Case {
    QuantFormat format;
    std::int64_t block;
};
class FourBit : public ::testing::TestWithParam<Case> {};

// By definition: no other code is clearly nearer than the one given.
TEST_P(FourBit, CodesAreNearest) {
    const auto [format, block] = GetParam();
    const std::int64_t rows = 43;
    const std::int64_t columns = 249;  // blocks straddle rows, the last is short, the count is odd
    const std::vector<float> values = numbers(rows * columns);
    const FourBitWeight weight(format, rows, columns, block, false);
    const QuantizedMatrix& matrix = weight.matrix();
    quantize_four_bit(values.data(), matrix, "w");
    const auto& table = four_bit_table(format);
    for (std::int64_t i = 0; i < matrix.elements(); ++i) {
        const std::int64_t begin = i / block * block;
        const std::int64_t end = std::min(begin + block, matrix.elements());
        float absmax = 0;
        for (std::int64_t k = begin; k < end; ++k)
            absmax = std::max(absmax, std::abs(values[static_cast<std::size_t>(k)]));
        ASSERT_EQ(block_absmax(matrix, i / block), absmax);
        const double y = static_cast<double>(values[static_cast<std::size_t>(i)]) / absmax;
        double least = 10;
        for (const float value : table)
            least = std::min(least, std::abs(y - value));
        // Two roundings of y and the decimals of FP4's thresholds: less than 1e-6.
        ASSERT_LE(std::abs(y - table[code_at(matrix, i)]), least + 1e-6) << i;
    }
    EXPECT_EQ(matrix.codes.data<std::uint8_t>()[matrix.elements() / 2] & 15,
              format == QuantFormat::nf4 ? 7 : 0);
}

TEST_P(FourBit, AnyPartDecodesToTheSameValues) {
    const auto [format, block] = GetParam();
    for (const bool is_double : {false, true}) {
        const FourBitWeight weight(format, 9, 751, block, is_double);
        const QuantizedMatrix& matrix = weight.matrix();
        quantize_four_bit(numbers(matrix.elements()).data(), matrix, "w");
        std::vector<float> all(static_cast<std::size_t>(matrix.elements()));
        dequantize_four_bit(matrix, 0, matrix.elements(), all.data());
        for (std::int64_t i = 0; i < matrix.elements(); ++i)
            ASSERT_EQ(all[static_cast<std::size_t>(i)],
                      four_bit_table(format)[code_at(matrix, i)] * block_absmax(matrix, i / block));
        for (const std::int64_t first : {0, 1, 31, 64, 777}) {
            for (const std::int64_t count : {0, 1, 2, 63, 1024, 5981}) {
                std::vector<float> part(static_cast<std::size_t>(count) + 1, -7.0f);
                dequantize_four_bit(matrix, first, count, part.data());
                ASSERT_TRUE(std::equal(part.begin(), part.end() - 1, all.begin() + first));
                ASSERT_EQ(part.back(), -7.0f);
                std::vector<bfloat16> rounded(static_cast<std::size_t>(count));
                dequantize_four_bit(matrix, first, count, rounded.data());
                for (std::size_t i = 0; i < rounded.size(); ++i)
                    ASSERT_EQ(rounded[i].bits, bfloat16(part[i]).bits);
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, FourBit,
                         ::testing::Values(Case{QuantFormat::nf4, 32}, Case{QuantFormat::nf4, 64},
                                           Case{QuantFormat::nf4, 256},
                                           Case{QuantFormat::nf4, 4096}, Case{QuantFormat::fp4, 32},
                                           Case{QuantFormat::fp4, 64},
                                           Case{QuantFormat::fp4, 4096}),
                         [](const auto& given) {
                             return std::string(name_of(given.param.format)) + "_" +
                                    std::to_string(given.param.block);
                         });

TEST(FourBitWeight, ThreadsDoNotChangeABit) {
    const std::vector<float> values = numbers(400 * 1021);
    std::vector<std::vector<std::byte>> results;
    const int threads = num_threads();
    for (const int n : {1, 2, 5}) {
        set_num_threads(n);
        const FourBitWeight weight(QuantFormat::nf4, 400, 1021, 64, true);
        const QuantizedMatrix& m = weight.matrix();
        quantize_four_bit(values.data(), m, "w");
        std::vector<std::byte> all;
        for (const Tensor& t : {m.codes, m.absmax, m.nested_absmax, m.offset}) {
            const auto* const bytes = static_cast<const std::byte*>(t.raw());
            all.insert(all.end(), bytes, bytes + t.bytes());
        }
        results.push_back(all);
    }
    set_num_threads(threads);
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
}

TEST(FourBitWeight, Bf16AndF32OfTheSameValuesAreTheSame) {
    std::vector<float> values = numbers(64 * 100);
    std::vector<bfloat16> rounded;
    for (float& value : values) {
        rounded.emplace_back(value);
        value = static_cast<float>(rounded.back());
    }
    for (const QuantFormat format : {QuantFormat::nf4, QuantFormat::fp4}) {
        const FourBitWeight a(format, 64, 100, 128, false);
        const FourBitWeight b(format, 64, 100, 128, false);
        quantize_four_bit(values.data(), a.matrix(), "a");
        quantize_four_bit(rounded.data(), b.matrix(), "b");
        for (std::int64_t i = 0; i < a.matrix().elements(); ++i)
            ASSERT_EQ(code_at(a.matrix(), i), code_at(b.matrix(), i));
    }
}

// Every finite bf16 below the block's largest, for largest ones of all sizes: thresholds that are searched among
// bf16's values must cut where products in f32 do.
TEST(FourBitWeight, EachBf16HasTheCodeOfItsF32) {
    for (const QuantFormat format : {QuantFormat::nf4, QuantFormat::fp4}) {
        for (std::uint32_t top = 1; top < 0x7f80; top += top < 0x3000 || top > 0x4000 ? 997 : 37) {
            std::vector<bfloat16> values(4096);
            std::vector<float> wide;
            for (std::uint32_t i = 0; i < 4096; ++i) {
                // The upper magnitudes densely, in both signs, beside the largest.
                const std::uint32_t magnitude = i == 0 ? top : top - std::min(top, i / 2);
                values[i] =
                    bfloat16::from_bits(static_cast<std::uint16_t>(magnitude | (i % 2) << 15));
                wide.push_back(static_cast<float>(values[i]));
            }
            const FourBitWeight a(format, 1, 4096, 4096, false);
            const FourBitWeight b(format, 1, 4096, 4096, false);
            quantize_four_bit(values.data(), a.matrix(), "a");
            quantize_four_bit(wide.data(), b.matrix(), "b");
            const auto* const x = a.matrix().codes.data<std::uint8_t>();
            const auto* const y = b.matrix().codes.data<std::uint8_t>();
            ASSERT_TRUE(std::equal(x, x + 2048, y)) << top;
        }
    }
}

TEST(FourBitWeight, ZerosAndTheSmallestNumbersStayFinite) {
    std::vector<float> values(64 * 3, 0.0f);
    values[70] = std::numeric_limits<float>::denorm_min();
    values[130] = -1e-38f;
    values[131] = std::numeric_limits<float>::max();
    for (const QuantFormat format : {QuantFormat::nf4, QuantFormat::fp4}) {
        const FourBitWeight weight(format, 3, 64, 64, false);
        quantize_four_bit(values.data(), weight.matrix(), "w");
        std::vector<float> out(values.size());
        dequantize_four_bit(weight.matrix(), 0, 64 * 3, out.data());
        for (std::size_t i = 0; i < out.size(); ++i)
            ASSERT_TRUE(std::isfinite(out[i])) << i;
        EXPECT_TRUE(std::all_of(out.begin(), out.begin() + 64, [](float x) { return x == 0; }));
        EXPECT_EQ(out[131], std::numeric_limits<float>::max());
    }
}

TEST(FourBitWeight, TheFirstBadElementIsNamed) {
    std::vector<float> values = numbers(300 * 1000);
    values[299'000] = std::numeric_limits<float>::infinity();
    values[70'001] = std::numeric_limits<float>::quiet_NaN();
    const FourBitWeight weight(QuantFormat::nf4, 300, 1000, 64, true);
    try {
        quantize_four_bit(values.data(), weight.matrix(), "model.layers.3.mlp.up_proj.weight");
        FAIL() << "no error";
    } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what())
                      .find("tensor model.layers.3.mlp.up_proj.weight [300, 1000]: "
                            "element 70001 is NaN or infinite"),
                  0u)
            << error.what();
    }
}

TEST(FourBitWeight, BlocksArePowersOfTwo) {
    for (const std::int64_t block : {32, 64, 128, 256, 512, 1024, 2048, 4096})
        EXPECT_TRUE(is_four_bit_block(block)) << block;
    for (const std::int64_t block : {-64, 0, 1, 16, 48, 96, 8192})
        EXPECT_FALSE(is_four_bit_block(block)) << block;
}

TEST(DynamicMap, EachValueHasItsOwnCodeAndMidpointsGoToTheEvenOne) {
    const DynamicMap& map = signed_dynamic_map();
    ASSERT_TRUE(std::is_sorted(map.begin(), map.end()));
    for (std::size_t code = 0; code < 256; ++code) {
        EXPECT_EQ(nearest_code(map, map[code]), code);
        if (code == 255) continue;
        const float midpoint = (map[code] + map[code + 1]) * 0.5f;
        EXPECT_EQ(nearest_code(map, midpoint), code % 2 == 0 ? code : code + 1);
        EXPECT_EQ(nearest_code(map, std::nextafter(midpoint, 2.0f)), code + 1);
        EXPECT_EQ(nearest_code(map, std::nextafter(midpoint, -2.0f)), code);
    }
    EXPECT_EQ(nearest_code(map, -5.0f), 0);
    EXPECT_EQ(nearest_code(map, 5.0f), 255);
}

}  // namespace
}  // namespace garam
