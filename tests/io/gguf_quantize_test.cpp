// Our quantisers on the golden input: ggml's bytes for Q8_0 and Q4_0; for Q4_K, whose search is our
// own, errors beside those of ggml's quantiser.
#include "garam/quant/gguf_quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "garam/io/gguf.h"
#include "garam/io/safetensors.h"
#include "garam/quant/gguf_blocks.h"
#include "testing/test_data.h"

namespace garam {
namespace {

constexpr std::int64_t kRows = 32;
constexpr std::int64_t kColumns = 256;

std::vector<float> golden(const std::string& name) {
    const auto file =
        SafetensorsFile::open(testing::data_dir() / "golden/gguf/types/dequant.safetensors");
    std::vector<float> values(kRows * kColumns);
    read_tensor(*file->find(name), values.data());
    return values;
}

void expect_bytes(const std::string& type,
                  bool (*quantize)(const float*, std::int64_t, std::byte*)) {
    const auto file = GgufFile::open(testing::data_dir() / "golden/gguf/types" / (type + ".gguf"));
    const StoredTensor& tensor = file->tensors()[0];
    std::vector<std::byte> blocks(tensor.bytes);
    ASSERT_TRUE(quantize(golden("input").data(), kRows * kColumns, blocks.data()));
    EXPECT_EQ(std::memcmp(blocks.data(), tensor.data, tensor.bytes), 0);
}

TEST(GgufQuantize, Q8_0AndQ4_0GiveGgmlsBytes) {
    GARAM_REQUIRE_DATA("golden/gguf/types/q8_0.gguf");
    expect_bytes("q8_0", quantize_q8_0);
    expect_bytes("q4_0", quantize_q4_0);
}

double squared_error(const float* a, const float* b, std::int64_t count) {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        const double off = static_cast<double>(a[i]) - static_cast<double>(b[i]);
        sum += off * off;
    }
    return sum;
}

// Rows 16 to 31 of the golden file were made by ggml's quantiser from the same rows of `input`.
TEST(GgufQuantize, Q4_KIsNoWorseThanGgmls) {
    GARAM_REQUIRE_DATA("golden/gguf/types/dequant.safetensors");
    const std::vector<float> input = golden("input");
    const std::vector<float> reference = golden("dequant.q4_k");
    std::vector<std::byte> blocks(kRows * kQ4KBytes);
    ASSERT_TRUE(quantize_q4_k(input.data(), kRows * kColumns, blocks.data()));
    std::vector<float> ours(input.size());
    dequantize_q4_k(blocks.data(), kRows * kColumns, ours.data());
    double sum_ours = 0;
    double sum_reference = 0;
    for (std::int64_t row = 16; row < kRows; ++row) {
        const std::int64_t at = row * kColumns;
        const double own = squared_error(ours.data() + at, input.data() + at, kColumns);
        const double other = squared_error(reference.data() + at, input.data() + at, kColumns);
        // Both minimise a weighted error; a row's plain one may come out a little larger.
        EXPECT_LE(own, 1.1 * other) << "row " << row;
        sum_ours += own / other;
        sum_reference += 1;
    }
    EXPECT_LE(sum_ours, sum_reference);
    RecordProperty("ratio", std::to_string(sum_ours / sum_reference));
}

// The bounds that the formats promise: half a step of the largest magnitude (a whole one for the value
// that Q4_0's asymmetric codes cannot reach), and the rounding of d to f16.
TEST(GgufQuantize, ErrorsStayWithinTheSteps) {
    std::mt19937 generator(7);
    std::normal_distribution<float> normal(0, 0.02f);
    constexpr std::int64_t kCount = 64 * kGgufSuperBlock;
    std::vector<float> values(kCount);
    for (float& value : values)
        value = normal(generator);
    std::vector<float> out(values.size());
    std::vector<std::byte> blocks(values.size() * 2);
    ASSERT_TRUE(quantize_q8_0(values.data(), kCount, blocks.data()));
    dequantize_q8_0(blocks.data(), kCount, out.data());
    double power = 0;
    for (std::int64_t b = 0; b < kCount; b += kGgufBlock) {
        float largest = 0;
        for (std::int64_t i = b; i < b + kGgufBlock; ++i)
            largest = std::max(largest, std::abs(values[i]));
        for (std::int64_t i = b; i < b + kGgufBlock; ++i) {
            ASSERT_LE(std::abs(out[i] - values[i]),
                      largest / 127 * 0.5f * (1 + 1e-5f) + largest * 0x1p-11f);
            power += static_cast<double>(values[i]) * static_cast<double>(values[i]);
        }
    }
    ASSERT_TRUE(quantize_q4_0(values.data(), kCount, blocks.data()));
    dequantize_q4_0(blocks.data(), kCount, out.data());
    const double q4_0 = squared_error(out.data(), values.data(), kCount) / power;
    ASSERT_TRUE(quantize_q4_k(values.data(), kCount, blocks.data()));
    dequantize_q4_k(blocks.data(), kCount, out.data());
    const double q4_k = squared_error(out.data(), values.data(), kCount) / power;
    // Normal values: a uniform step of max / 8, max near 2.1 sigma of 32: (2.1 / 8)^2 / 12 = 0.0057 and
    // what the extreme's sign costs; a step of the range / 15 with both ends fitted is finer.
    EXPECT_LT(q4_0, 0.009);
    EXPECT_LT(q4_k, 0.0062);
    RecordProperty("q4_0", std::to_string(q4_0));
    RecordProperty("q4_k", std::to_string(q4_k));
}

TEST(GgufQuantize, ZerosConstantsAndTinyValues) {
    std::vector<float> values(kGgufSuperBlock, 0.0f);
    std::vector<float> out(values.size(), 1.0f);
    std::vector<std::byte> blocks(kQ4KBytes * 4);
    ASSERT_TRUE(quantize_q4_k(values.data(), kGgufSuperBlock, blocks.data()));
    dequantize_q4_k(blocks.data(), kGgufSuperBlock, out.data());
    for (const float value : out)
        EXPECT_EQ(value, 0.0f);
    for (const float constant : {-0.75f, 0.75f, 1e-12f, -1e-12f}) {
        values.assign(values.size(), constant);
        ASSERT_TRUE(quantize_q4_k(values.data(), kGgufSuperBlock, blocks.data()));
        dequantize_q4_k(blocks.data(), kGgufSuperBlock, out.data());
        for (const float value : out)
            EXPECT_NEAR(value, constant, std::abs(constant) * 1e-3f + 1e-6f);
    }
}

TEST(GgufQuantize, EveryMagnitudeIsTakenOrTold) {
    std::mt19937 generator(3);
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> values(kGgufSuperBlock);
    std::vector<float> out(values.size());
    std::vector<std::byte> blocks(kQ8_0Bytes * 8);
    for (int exponent = -149; exponent < 128; ++exponent) {
        for (float& value : values)
            value = std::ldexp(uniform(generator), exponent);
        // A share of the largest value; or what is lost where a scale vanishes in f16: Q4_K's codes up to
        // 15, times 63 of its largest / 63 below 2^-25.
        const float allowed = std::max(std::ldexp(0.14f, exponent), 15 * 63 * 0x1p-25f);
        const auto check = [&](const char* name, bool taken, auto dequantize) {
            EXPECT_TRUE(taken || exponent > 15) << name << " 2^" << exponent;
            if (!taken) return;
            dequantize(blocks.data(), kGgufSuperBlock, out.data());
            for (std::size_t i = 0; i < out.size(); ++i)
                ASSERT_LE(std::abs(out[i] - values[i]), allowed) << name << " 2^" << exponent;
        };
        check("q8_0", quantize_q8_0(values.data(), kGgufSuperBlock, blocks.data()),
              dequantize_q8_0);
        check("q4_0", quantize_q4_0(values.data(), kGgufSuperBlock, blocks.data()),
              dequantize_q4_0);
        check("q4_k", quantize_q4_k(values.data(), kGgufSuperBlock, blocks.data()),
              dequantize_q4_k);
    }
}

TEST(GgufQuantize, ValuesBeyondTheScaleAreTold) {
    std::vector<float> values(kGgufSuperBlock, 0.0f);
    values[7] = 3e37f;
    std::vector<std::byte> blocks(kQ8_0Bytes * 8);
    EXPECT_FALSE(quantize_q8_0(values.data(), kGgufSuperBlock, blocks.data()));
    EXPECT_FALSE(quantize_q4_0(values.data(), kGgufSuperBlock, blocks.data()));
    EXPECT_FALSE(quantize_q4_k(values.data(), kGgufSuperBlock, blocks.data()));
}

}  // namespace
}  // namespace garam
