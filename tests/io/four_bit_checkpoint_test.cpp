#include "garam/io/four_bit_checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "garam/core/error.h"
#include "garam/io/model_files.h"
#include "garam/io/safetensors.h"
#include "garam/quant/dynamic_map.h"
#include "garam/quant/four_bit.h"
#include "io/mutation.h"
#include "io/refusal.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam {
namespace {

using testing::TempDir;

constexpr const char* kConfig =
    R"({"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4"}})";

std::vector<float> numbers(std::int64_t count) {
    std::vector<float> values;
    std::uint32_t state = 99;
    for (std::int64_t i = 0; i < count; ++i) {
        state = state * 1664525u + 1013904223u;
        values.push_back(static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f *
                         static_cast<float>(1 + i / 64 % 7));
    }
    return values;
}

// The parts of a weight "w" as a file holds them, to be changed and written.
struct Parts {
    struct Part {
        DType dtype = DType::u8;
        Shape shape;
        std::vector<std::byte> bytes;
    };
    std::map<std::string, Part> parts;
    std::string config = kConfig;

    void put(const std::string& name, DType dtype, const Shape& shape, const void* data) {
        Part& part = parts[name];
        part.dtype = dtype;
        part.shape = shape;
        const auto* const bytes = static_cast<const std::byte*>(data);
        part.bytes.assign(bytes,
                          bytes + static_cast<std::size_t>(shape.elements()) * size_of(dtype));
    }
    void put(const std::string& name, const Tensor& tensor) {
        put(name, tensor.dtype(), tensor.shape(), tensor.raw());
    }
    void put(const std::string& name, const std::vector<float>& values) {
        put(name, DType::f32, {static_cast<std::int64_t>(values.size())}, values.data());
    }
    void put_state(const std::string& json, const std::string& type = "nf4") {
        put("w.quant_state.bitsandbytes__" + type, DType::u8,
            {static_cast<std::int64_t>(json.size())}, json.data());
    }

    void write(const TempDir& dir) const {
        dir.write("config.json", config);
        std::vector<std::pair<std::string, Tensor>> tensors;
        for (const auto& [name, part] : parts)
            tensors.emplace_back(name, Tensor(const_cast<std::byte*>(part.bytes.data()), part.dtype,
                                              part.shape, DeviceKind::cpu));
        write_safetensors(dir / "model.safetensors", tensors);
    }
};

struct Example {
    Shape shape{20, 70};
    FourBitWeight weight;
    std::vector<float> decoded;
    Parts parts;

    explicit Example(bool is_double, QuantFormat format = QuantFormat::nf4)
        : weight(format, 20, 70, 64, is_double), decoded(1400) {
        const QuantizedMatrix& matrix = weight.matrix();
        quantize_four_bit(numbers(1400).data(), matrix, "w");
        dequantize_four_bit(matrix, 0, 1400, decoded.data());
        parts.put("w", DType::u8, {700, 1}, matrix.codes.raw());
        parts.put("w.absmax", matrix.absmax);
        const auto& table = four_bit_table(format);
        parts.put("w.quant_map", {table.begin(), table.end()});
        if (is_double) {
            parts.put("w.nested_absmax", matrix.nested_absmax);
            const DynamicMap& map = signed_dynamic_map();
            parts.put("w.nested_quant_map", {map.begin(), map.end()});
        }
        parts.put_state(quant_state_json(matrix, shape, DType::bf16), std::string(name_of(format)));
        const float bias = 3;
        parts.put("w.bias", DType::f32, {1}, &bias);
    }
};

std::vector<float> values_of(const StoredTensor& tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.shape.elements()));
    read_tensor(tensor, values.data());
    return values;
}

void expect_reads(const Parts& parts, const std::vector<float>& want) {
    const TempDir dir;
    parts.write(dir);
    const ModelFiles files = ModelFiles::open(dir.path());
    ASSERT_EQ(files.tensors().size(), 2u);
    const StoredTensor& tensor = files.at("w");
    EXPECT_EQ(tensor.shape, (Shape{20, 70}));
    EXPECT_EQ(values_of(tensor), want);
    EXPECT_EQ(tensor.four_bit->dtype, DType::bf16);
    check_finite(tensor);

    std::vector<bfloat16> rounded(want.size());
    read_tensor(tensor, rounded.data());
    for (std::size_t i = 0; i < want.size(); ++i)
        ASSERT_EQ(rounded[i].bits, bfloat16(want[i]).bits);

    // Rows begin within a block and within a byte's pair of blocks.
    const StoredTensor rows = rows_of(rows_of(tensor, 3, 15), 2, 9);
    EXPECT_EQ(rows.shape, (Shape{9, 70}));
    EXPECT_EQ(values_of(rows), std::vector<float>(want.begin() + 350, want.begin() + 980));
    EXPECT_FALSE(quantized_view(rows));

    const QuantizedMatrix view = quantized_view(tensor);
    ASSERT_TRUE(view);
    EXPECT_EQ(view.rows, 20);
    EXPECT_EQ(view.columns, 70);
    std::vector<float> viewed(want.size());
    dequantize_four_bit(view, 0, view.elements(), viewed.data());
    EXPECT_EQ(viewed, want);
    EXPECT_FALSE(quantized_view(files.at("w.bias")));
}

TEST(FourBitCheckpoint, AWeightAndItsPartsAreOneTensor) {
    for (const QuantFormat format : {QuantFormat::nf4, QuantFormat::fp4}) {
        for (const bool is_double : {false, true}) {
            const Example example(is_double, format);
            expect_reads(example.parts, example.decoded);
        }
    }
}

TEST(FourBitCheckpoint, CodesOfAnotherStorageTypeAndOrientation) {
    Example example(true);
    const std::vector<std::byte> codes = example.parts.parts.at("w").bytes;
    for (const auto& [dtype, shape] :
         {std::pair{DType::bf16, Shape{350, 1}}, std::pair{DType::f16, Shape{350}},
          std::pair{DType::f32, Shape{175, 1}}, std::pair{DType::u8, Shape{1, 700}}}) {
        example.parts.put("w", dtype, shape, codes.data());
        expect_reads(example.parts, example.decoded);
    }
}

// A map of another version, and nested blocks of another size: the absmax of each block is decoded by them.
TEST(FourBitCheckpoint, OtherNestedMapsAreFollowed) {
    Example example(true);
    const QuantizedMatrix& matrix = example.weight.matrix();
    std::vector<float> map(signed_dynamic_map().begin(), signed_dynamic_map().end());
    map[100] = std::nextafter(map[100], 0.0f);
    map[200] += 0.125f;
    example.parts.put("w.nested_quant_map", map);
    example.parts.put("w.nested_absmax", {0.5f, 0.25f, 2.0f});
    const float offset = 0.75f;
    example.parts.put_state(
        R"({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [20, 70],
        "nested_blocksize": 8, "nested_dtype": "float32", "nested_offset": 0.75})");
    std::vector<float> want(1400);
    for (std::int64_t i = 0; i < 1400; ++i) {
        const std::int64_t b = i / 64;
        const std::uint8_t byte = matrix.codes.data<std::uint8_t>()[i / 2];
        const float nested = b / 8 == 0 ? 0.5f : b / 8 == 1 ? 0.25f : 2.0f;
        const float absmax = map[matrix.absmax.data<std::uint8_t>()[b]] * nested + offset;
        want[static_cast<std::size_t>(i)] =
            four_bit_table(QuantFormat::nf4)[i % 2 == 0 ? byte >> 4 : byte & 15] * absmax;
    }
    expect_reads(example.parts, want);
}

TEST(FourBitCheckpoint, ScalesThatLieUnalignedAreCopied) {
    for (const bool is_double : {false, true}) {
        Example example(is_double);
        // One byte before all others.
        const std::uint8_t one = 1;
        example.parts.put("a", DType::u8, {1}, &one);
        const TempDir dir;
        example.parts.write(dir);
        const ModelFiles files = ModelFiles::open(dir.path());
        EXPECT_EQ(values_of(files.at("w")), example.decoded);
    }
}

std::string refusal_of(const Parts& parts) {
    const TempDir dir;
    parts.write(dir);
    return testing::refusal_naming(dir.path(), [&] { ModelFiles::open(dir.path()); });
}

void expect_refused(const std::function<void(Parts&)>& change, const std::string& reason,
                    bool is_double = true) {
    Example example(is_double);
    change(example.parts);
    EXPECT_REFUSED(example.parts, reason);
}

TEST(FourBitCheckpoint, EveryPartIsChecked) {
    for (const char* part : {"w", "w.absmax", "w.quant_map", "w.nested_quant_map"})
        expect_refused([&](Parts& p) { p.parts.erase(part); },
                       "tensor w: its part " + std::string(part) + " is missing");
    expect_refused([](Parts& p) { p.parts.erase("w.nested_absmax"); },
                   "its part w.nested_absmax is missing");
    expect_refused([](Parts& p) { p.parts.erase("w.quant_state.bitsandbytes__nf4"); },
                   "no tensor has a quant_state");
    const auto shorter = [](const std::string& name) {
        return [name](Parts& p) {
            Parts::Part& part = p.parts.at(name);
            part.bytes.resize(part.bytes.size() - size_of(part.dtype));
            part.shape = {static_cast<std::int64_t>(part.bytes.size() / size_of(part.dtype))};
        };
    };
    expect_refused(shorter("w"), "w has 699 bytes, shape [20, 70] in blocks of 64 needs 700");
    expect_refused(shorter("w.absmax"),
                   "w.absmax has 21 bytes, shape [20, 70] in blocks of 64 needs 22");
    expect_refused(shorter("w.absmax"), "w.absmax has 84 bytes", false);
    expect_refused(shorter("w.quant_map"), "w.quant_map has 60 bytes");
    expect_refused(shorter("w.nested_absmax"), "w.nested_absmax has 0 bytes");
    expect_refused(shorter("w.nested_quant_map"), "w.nested_quant_map has 1020 bytes");
    expect_refused(
        [](Parts& p) {
            p.parts.at("w.absmax").dtype = DType::f32;
            p.parts.at("w.absmax").bytes.resize(88);
        },
        "w.absmax is f32, not u8");
    expect_refused([](Parts& p) { p.parts.at("w.quant_map").dtype = DType::i32; },
                   "w.quant_map is i32, not f32");
    expect_refused(
        [](Parts& p) {
            std::vector<float> table(four_bit_table(QuantFormat::nf4).begin(),
                                     four_bit_table(QuantFormat::nf4).end());
            table[3] = -0.3736951f;
            p.put("w.quant_map", table);
        },
        "w.quant_map is not the table of nf4: code 3 is");
    expect_refused(
        [](Parts& p) {
            p.put("w.quant_map", std::vector<float>(16, std::numeric_limits<float>::quiet_NaN()));
        },
        "w.quant_map is not the table of nf4");
    expect_refused(
        [](Parts& p) {
            Parts::Part state = p.parts.at("w.quant_state.bitsandbytes__nf4");
            p.parts.erase("w.quant_state.bitsandbytes__nf4");
            p.parts["w.quant_state.bitsandbytes__af4"] = state;
        },
        "tensor w: is quantised as af4 (supported: nf4, fp4)");
    expect_refused(
        [](Parts& p) {
            p.parts["w.quant_state.bitsandbytes__fp4"] =
                p.parts.at("w.quant_state.bitsandbytes__nf4");
        },
        "its quant_state says quant_type \"nf4\", its name fp4");
}

TEST(FourBitCheckpoint, EveryMemberOfTheStateIsChecked) {
    const auto with_shape = [](const std::string& shape, const std::string& more = "") {
        return R"({"quant_type": "nf4", "blocksize": 64, "dtype": "float16", "shape": )" + shape +
               more + "}";
    };
    const auto nested = [&](const std::string& block, const std::string& offset) {
        return with_shape("[20, 70]",
                          R"(, "nested_blocksize": )" + block + R"(, "nested_offset": )" + offset);
    };
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"{", "not valid JSON"},
        {"[]", "must be an object, not array"},
        {R"({"quant_type": 4})", "quant_type must be a string"},
        {R"({"quant_type": "nf4"})", "\"blocksize\" is missing"},
        {R"({"quant_type": "nf4", "blocksize": 48})",
         "blocksize 48 is no power of two from 32 to 4096"},
        {R"({"quant_type": "nf4", "blocksize": 64.5})", "blocksize"},
        {R"({"quant_type": "nf4", "blocksize": -9223372036854775808})", "is no power of two"},
        {R"({"quant_type": "nf4", "blocksize": 64, "dtype": "int8"})", "dtype \"int8\" is none of"},
        {with_shape("null"), "shape must be an array"},
        {with_shape("[]"), "0 dimensions"},
        {with_shape("[1, 1, 1, 1, 1]"), "5 dimensions"},
        {with_shape("[20, 0]"), "not positive"},
        {with_shape("[-20, -70]"), "not positive"},
        {with_shape("[20, 71]"), "needs 710"},
        {with_shape("[4611686018427387904, 4]"), "its shape"},
        {with_shape("[9223372036854775807]"), "needs 4611686018427387904"},
        {with_shape("[20, 70]"), "no nested_blocksize and nested_offset"},
        {nested("0", "1"), "nested_blocksize 0"},
        {nested("256", "1e300"), "nested_offset inf"},
        {nested("256", R"("1")"), "nested_offset must be a number"},
        {std::string(70'000, ' '), "absurdly long"},
    };
    for (const auto& [state, reason] : cases)
        expect_refused([&](Parts& p) { p.put_state(state); }, reason);
}

TEST(FourBitCheckpoint, ScalesThatAreNotFiniteAreNamed) {
    Example example(false);
    std::vector<float> absmax(22, 1.0f);
    absmax[5] = std::numeric_limits<float>::infinity();
    example.parts.put("w.absmax", absmax);
    const TempDir dir;
    example.parts.write(dir);
    const ModelFiles files = ModelFiles::open(dir.path());
    const auto message_of = [](const auto& action) -> std::string {
        try {
            action();
        } catch (const Error& error) {
            return error.what();
        }
        return "no error";
    };
    EXPECT_NE(message_of([&] {
                  check_finite(files.at("w"));
              }).find("tensor w [20, 70]: the scale of element 320"),
              std::string::npos);
    EXPECT_NE(message_of([&] { values_of(files.at("w")); }).find("tensor w [20, 70]: element 32"),
              std::string::npos);
}

TEST(FourBitCheckpoint, OtherMethodsAreRefusedByName) {
    const auto refusal = [](const std::string& config) {
        Example example(false);
        example.parts.config = R"({"quantization_config": )" + config + "}";
        return refusal_of(example.parts);
    };
    const auto expect = [&](const std::string& config, const std::string& reason) {
        const std::string message = refusal(config);
        EXPECT_NE(message.find(reason), std::string::npos) << message << "\nlacks " << reason;
    };
    EXPECT_EQ(refusal(R"({"load_in_4bit": true})"), "read");  // as old files have it
    EXPECT_EQ(
        refusal(R"({"load_in_4bit": true, "load_in_8bit": false, "quant_method": "bitsandbytes"})"),
        "read");
    expect(R"({"quant_method": "gptq", "bits": 4})",
           "checkpoints quantised by gptq are not supported");
    expect(R"({"quant_method": "bitsandbytes", "load_in_8bit": true})", "bitsandbytes in 8 bits");
    expect(R"({"quant_method": "bitsandbytes"})", "bitsandbytes without load_in_4bit");
    expect(R"({"quant_method": 3})", "quantised by 3");
    expect(R"({})", "an unnamed method");
    expect(R"({"load_in_4bit": "yes"})", "load_in_4bit must be true or false");
    expect(R"({"load_in_4bit": true, "bnb_4bit_quant_type": "int4"})", "bitsandbytes as int4");
}

TEST(FourBitCheckpoint, AConfigThatLostItsQuantisationIsNamed) {
    Example example(false);
    example.parts.config = "{}";
    const std::string message = refusal_of(example.parts);
    EXPECT_NE(message.find("config.json: has no quantization_config, but w.quant_state"),
              std::string::npos)
        << message;
}

TEST(FourBitCheckpoint, ConfigSaysWhatIsQuantised) {
    BaseQuantization options;
    options.format = QuantFormat::nf4;
    options.double_quantization = true;
    options.skip_modules = {"lm_head", "model.layers.0.mlp.down_proj"};
    Json config;
    config.set("quantization_config", quantization_config(options, "bfloat16"));
    const std::optional<BaseQuantization> read = four_bit_config(config, "config.json");
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->format, QuantFormat::nf4);
    EXPECT_TRUE(read->double_quantization);
    EXPECT_EQ(read->skip_modules, options.skip_modules);
    EXPECT_FALSE(four_bit_config(Json(Json::Object{}), "config.json").has_value());
}

TEST(FourBitCheckpoint, NoMutationCrashes) {
    const TempDir dir;
    Example(true).parts.write(dir);
    const std::string content = testing::read_file(dir / "model.safetensors");
    const auto result = testing::try_mutations(content, dir / "model.safetensors", 4000, 7, [&] {
        const ModelFiles files = ModelFiles::open(dir.path());
        if (const StoredTensor* tensor = files.find("w");
            tensor != nullptr && tensor->shape.elements() < 1 << 20)
            values_of(*tensor);
    });
    EXPECT_GT(result.opened, 100);
    EXPECT_GT(result.refused, 100);
}

TEST(FourBitCheckpoint, GoldenFolderHasItsLinearsIn4Bits) {
    GARAM_REQUIRE_DATA("golden/qlora");
    const ModelFiles files = ModelFiles::open(testing::data_dir() / "golden/qlora/stories260K-nf4");
    int four_bit = 0;
    for (const StoredTensor& tensor : files.tensors()) {
        four_bit += tensor.four_bit != nullptr ? 1 : 0;
        check_finite(tensor);
    }
    EXPECT_EQ(four_bit, 35);
    EXPECT_EQ(files.tensors().size(), 47u);
    EXPECT_EQ(files.at("model.layers.0.mlp.down_proj.weight").shape, (Shape{64, 172}));
}

}  // namespace
}  // namespace garam
