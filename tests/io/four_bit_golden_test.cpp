// quant/four_bit.h and quant/dynamic_map.h against what bitsandbytes and exact arithmetic give.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "garam/core/dynamic_code_tables.h"
#include "garam/io/safetensors.h"
#include "garam/quant/dynamic_map.h"
#include "garam/quant/four_bit.h"
#include "testing/test_data.h"

namespace garam {
namespace {

using testing::data_dir;

constexpr const char* kFolder = "golden/nf4";

template <typename T>
std::vector<T> elements_of(const StoredTensor& tensor) {
    std::vector<T> out(tensor.bytes / sizeof(T));
    std::memcpy(out.data(), tensor.data, tensor.bytes);
    return out;
}
template <typename T>
std::vector<T> elements_of(const Tensor& tensor) {
    const T* const data = tensor.data<T>();
    return {data, data + tensor.elements()};
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
    std::vector<std::uint32_t> bits;
    for (const float value : values)
        bits.push_back(std::bit_cast<std::uint32_t>(value));
    return bits;
}

template <typename T>
std::vector<T> decoded(const QuantizedMatrix& matrix) {
    std::vector<T> out(static_cast<std::size_t>(matrix.elements()));
    dequantize_four_bit(matrix, 0, matrix.elements(), out.data());
    return out;
}

template <typename T>
void expect_values(const QuantizedMatrix& matrix, const StoredTensor& expected) {
    const std::vector<T> values = decoded<T>(matrix);
    const std::vector<T> wanted = elements_of<T>(expected);
    ASSERT_EQ(values.size(), wanted.size());
    for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(static_cast<float>(values[i]), static_cast<float>(wanted[i]))
            << expected.name << " " << i;
}

class FourBitGolden : public ::testing::TestWithParam<std::string> {
  protected:
    void open() {
        file_ = SafetensorsFile::open(data_dir() / kFolder / GetParam());
        const StoredTensor& input = at("input");
        rows_ = input.shape[0];
        columns_ = input.shape[1];
        format_ = GetParam().starts_with("fp4") ? QuantFormat::fp4 : QuantFormat::nf4;
    }
    const StoredTensor& at(const std::string& name) const {
        const StoredTensor* tensor = file_->find(name);
        if (tensor == nullptr) throw std::runtime_error("golden has no " + name);
        return *tensor;
    }
    FourBitWeight quantised(bool double_quantization) const {
        FourBitWeight weight(format_, rows_, columns_, 64, double_quantization);
        if (at("input").type == StoredType::bf16) {
            quantize_four_bit(elements_of<bfloat16>(at("input")).data(), weight.matrix(), "input");
        } else {
            quantize_four_bit(elements_of<float>(at("input")).data(), weight.matrix(), "input");
        }
        return weight;
    }

    std::shared_ptr<const SafetensorsFile> file_;
    std::int64_t rows_ = 0;
    std::int64_t columns_ = 0;
    QuantFormat format_ = QuantFormat::nf4;
};

TEST_P(FourBitGolden, CodesScalesAndValuesAreEqual) {
    GARAM_REQUIRE_DATA(kFolder);
    open();
    const FourBitWeight weight = quantised(false);
    const QuantizedMatrix& matrix = weight.matrix();
    EXPECT_EQ(elements_of<std::uint8_t>(matrix.codes),
              elements_of<std::uint8_t>(at("plain.packed")));
    EXPECT_EQ(bits_of(elements_of<float>(matrix.absmax)),
              bits_of(elements_of<float>(at("plain.absmax"))));
    const auto& table = four_bit_table(format_);
    EXPECT_EQ(bits_of({table.begin(), table.end()}), bits_of(elements_of<float>(at("quant_map"))));
    expect_values<float>(matrix, at("plain.dequant_f32"));
    expect_values<bfloat16>(matrix, at("plain.dequant_bf16"));
}

TEST_P(FourBitGolden, DoubleQuantisationIsExactNearest) {
    GARAM_REQUIRE_DATA(kFolder);
    open();
    const FourBitWeight weight = quantised(true);
    const QuantizedMatrix& matrix = weight.matrix();
    const FourBitWeight plain = quantised(false);
    EXPECT_EQ(elements_of<std::uint8_t>(matrix.codes),
              elements_of<std::uint8_t>(plain.matrix().codes));

    // torch sums in f32.
    const float offset = elements_of<float>(at("double.offset")).at(0);
    const float ours = *matrix.offset.data<float>();
    EXPECT_LE(std::abs(ours - offset), std::nextafter(offset, 1e30f) - offset);
    const std::vector<float> nested = elements_of<float>(at("double.nested_absmax"));
    ASSERT_EQ(matrix.nested_absmax.elements(), static_cast<std::int64_t>(nested.size()));
    for (std::size_t i = 0; i < nested.size(); ++i)
        EXPECT_NEAR(matrix.nested_absmax.data<float>()[i], nested[i], std::abs(ours - offset));
    if (nested[0] == 0) return;  // one block: its code is multiplied by 0

    const std::vector<std::uint8_t> exact = elements_of<std::uint8_t>(at("double.absmax_exact"));
    const std::vector<std::uint8_t> table = elements_of<std::uint8_t>(at("double.absmax"));
    const std::vector<std::uint8_t> codes = elements_of<std::uint8_t>(matrix.absmax);
    EXPECT_EQ(codes, exact);
    for (std::size_t i = 0; i < codes.size(); ++i)
        EXPECT_LE(std::abs(codes[i] - table[i]), 1) << i;
}

TEST_P(FourBitGolden, DoublyQuantisedValuesAreEqual) {
    GARAM_REQUIRE_DATA(kFolder);
    open();
    // The stored parts, so that neither the offset's last unit nor a code of the table counts.
    FourBitWeight weight(format_, rows_, columns_, 64, true);
    const QuantizedMatrix& matrix = weight.matrix();
    const auto put = [&](const Tensor& place, const std::string& name) {
        ASSERT_EQ(static_cast<std::size_t>(place.bytes()), at(name).bytes) << name;
        std::memcpy(place.raw(), at(name).data, at(name).bytes);
    };
    put(matrix.codes, "plain.packed");
    put(matrix.absmax, "double.absmax");
    put(matrix.nested_absmax, "double.nested_absmax");
    put(matrix.offset, "double.offset");
    const std::vector<float> absmax = elements_of<float>(at("double.absmax_dequantised"));
    for (std::size_t b = 0; b < absmax.size(); ++b)
        EXPECT_EQ(block_absmax(matrix, static_cast<std::int64_t>(b)), absmax[b]);
    expect_values<float>(matrix, at("double.dequant_f32"));
    expect_values<bfloat16>(matrix, at("double.dequant_bf16"));
}

INSTANTIATE_TEST_SUITE_P(
    Files, FourBitGolden,
    ::testing::Values("nf4_64x64_fp32.safetensors", "nf4_64x64_bf16.safetensors",
                      "nf4_96x160_fp32.safetensors", "nf4_96x160_bf16.safetensors",
                      "nf4_172x64_fp32.safetensors", "nf4_172x64_bf16.safetensors",
                      "nf4_5x7_fp32.safetensors", "nf4_5x7_bf16.safetensors",
                      "nf4_136x128_bf16.safetensors", "fp4_96x160_bf16.safetensors"),
    [](const auto& given) { return given.param.substr(0, given.param.find('.')); });

TEST(DynamicMapGolden, BothMapsAreEqual) {
    GARAM_REQUIRE_DATA(kFolder);
    const auto file = SafetensorsFile::open(data_dir() / kFolder / "code_tables.safetensors");
    const auto expect = [&](const auto& map, const char* name) {
        ASSERT_NE(file->find(name), nullptr);
        EXPECT_EQ(bits_of({std::begin(map), std::end(map)}),
                  bits_of(elements_of<float>(*file->find(name))))
            << name;
    };
    expect(signed_dynamic_map(), "dynamic_signed");
    expect(kUnsignedDynamicCode.value, "dynamic_unsigned");
}

}  // namespace
}  // namespace garam
