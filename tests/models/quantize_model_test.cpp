#include "garam/models/quantize_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "garam/core/error.h"
#include "garam/io/four_bit_checkpoint.h"
#include "garam/io/safetensors.h"
#include "garam/quant/four_bit.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

using testing::TempDir;
using testing::TinyModel;

template <typename T = float>
std::vector<T> values_of(const StoredTensor& tensor) {
    std::vector<T> values(static_cast<std::size_t>(tensor.shape.elements()));
    read_tensor(tensor, values.data());
    return values;
}

QuantizeModelOptions options_of(QuantFormat format, bool is_double) {
    QuantizeModelOptions options;
    options.base.format = format;
    options.base.double_quantization = is_double;
    return options;
}

// A linear's values are those that quantising it gives, all others those of the base, in the linears' type.
void expect_quantised(const ModelFiles& base, const std::filesystem::path& folder,
                      const QuantizeModelOptions& options, const std::set<std::string>& kept = {}) {
    const ModelFiles written = ModelFiles::open(folder);
    ASSERT_EQ(written.tensors().size(), base.tensors().size());
    const StoredType plain = base.at("model.layers.0.self_attn.q_proj.weight").type;
    int quantised = 0;
    for (const StoredTensor& tensor : base.tensors()) {
        const StoredTensor& got = written.at(tensor.name);
        ASSERT_EQ(got.shape, tensor.shape) << tensor.name;
        const bool expected =
            tensor.name.find("_proj.weight") != std::string::npos && !kept.contains(tensor.name);
        ASSERT_EQ(got.four_bit != nullptr, expected) << tensor.name;
        if (!expected) {
            EXPECT_EQ(got.type, plain) << tensor.name;
            EXPECT_EQ(values_of(got), values_of(tensor)) << tensor.name;
            continue;
        }
        ++quantised;
        const FourBitWeight weight(options.base.format, tensor.shape[0], tensor.shape[1],
                                   options.base.block, options.base.double_quantization);
        quantize_four_bit(values_of(tensor).data(), weight.matrix(), tensor.name);
        std::vector<float> want(static_cast<std::size_t>(tensor.shape.elements()));
        dequantize_four_bit(weight.matrix(), 0, tensor.shape.elements(), want.data());
        EXPECT_EQ(values_of(got), want) << tensor.name;
        // What torch could not view: nothing had to be copied, so all f32 parts lie aligned.
        EXPECT_TRUE(got.four_bit->absmax.empty() && got.four_bit->nested_absmax.empty());
        EXPECT_EQ(got.four_bit->matrix.is_double(), options.base.double_quantization);
    }
    EXPECT_GT(quantised, 0);
    const std::optional<BaseQuantization> told = four_bit_config(written.config(), "config.json");
    ASSERT_TRUE(told.has_value());
    EXPECT_EQ(told->format, options.base.format);
    EXPECT_EQ(told->double_quantization, options.base.double_quantization);
}

TEST(QuantizeModel, LinearsAreInFourBitsAndTheRestInTheirType) {
    for (const char* dtype : {"f32", "f16", "bf16"}) {
        TinyModel model;
        model.dtype = dtype;
        model.biases = true;
        model.tied = false;
        const TempDir dir;
        testing::write_tiny_model(dir / "base", model);
        const ModelFiles base = ModelFiles::open(dir / "base");
        for (const bool is_double : {false, true}) {
            const TempDir out;
            QuantizeModelOptions options = options_of(QuantFormat::nf4, is_double);
            options.base.block = is_double ? 32 : 128;
            const QuantizeModelReport report = write_four_bit_model(base, out.path(), options);
            EXPECT_EQ(report.quantised, 14);
            expect_quantised(base, out.path(), options);
        }
    }
}

// A model of `dtype` but for its norms, which are f32, with `value` among them.
void write_norms_in_f32(const std::filesystem::path& folder, DType dtype, float value) {
    TinyModel model;
    model.dtype = name_of(dtype);
    testing::write_tiny_model(folder, model);
    const auto file = SafetensorsFile::open(folder / "model.safetensors");
    std::vector<std::vector<float>> norms;
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const StoredTensor& tensor : file->tensors()) {
        const bool is_norm = tensor.name.find("norm.") != std::string::npos;
        if (is_norm) {
            norms.push_back(values_of(tensor));
            norms.back()[3] = value;
        }
        tensors.emplace_back(tensor.name, is_norm ? Tensor(norms.back().data(), DType::f32,
                                                           tensor.shape, DeviceKind::cpu)
                                                  : Tensor(const_cast<std::byte*>(tensor.data),
                                                           dtype, tensor.shape, DeviceKind::cpu));
    }
    write_safetensors(folder / "model.safetensors", tensors);
}

TEST(QuantizeModel, NormsInAnotherTypeAreInTheLinears) {
    const TempDir dir;
    write_norms_in_f32(dir / "base", DType::bf16, 0.5f);
    const ModelFiles base = ModelFiles::open(dir / "base");
    ASSERT_EQ(base.at("model.norm.weight").type, StoredType::f32);
    const TempDir out;
    const QuantizeModelOptions options = options_of(QuantFormat::nf4, true);
    write_four_bit_model(base, out.path(), options);
    expect_quantised(base, out.path(), options);
}

// Half precision ends at 65504: nothing becomes infinite without a word.
TEST(QuantizeModel, RefusesWhatTheLinearsTypeDoesNotHold) {
    const TempDir dir;
    write_norms_in_f32(dir / "base", DType::f16, 70000);
    const TempDir out;
    try {
        write_four_bit_model(ModelFiles::open(dir / "base"), out.path(),
                             options_of(QuantFormat::nf4, false));
        FAIL();
    } catch (const Error& error) {
        const std::string message = error.what();
        EXPECT_NE(message.find("norm.weight: element 3 is beyond the range of f16: "),
                  std::string::npos)
            << message;
    }
}

TEST(QuantizeModel, ShardsAreIndexed) {
    const TempDir dir;
    testing::write_tiny_model(dir / "base", {});
    const ModelFiles base = ModelFiles::open(dir / "base");
    const TempDir out;
    QuantizeModelOptions options = options_of(QuantFormat::fp4, true);
    options.shard_bytes = 8000;
    write_four_bit_model(base, out.path(), options);
    EXPECT_TRUE(std::filesystem::exists(out / "model.safetensors.index.json"));
    EXPECT_FALSE(std::filesystem::exists(out / "model.safetensors"));
    expect_quantised(base, out.path(), options);
}

TEST(QuantizeModel, SkippedModulesAreNotQuantised) {
    TinyModel model;
    model.tied = false;
    const TempDir dir;
    testing::write_tiny_model(dir / "base", model);
    const ModelFiles base = ModelFiles::open(dir / "base");
    const TempDir out;
    QuantizeModelOptions options = options_of(QuantFormat::nf4, false);
    options.base.skip_modules = {"down_proj", "model.layers.1.self_attn"};
    write_four_bit_model(base, out.path(), options);
    std::set<std::string> kept;
    for (const StoredTensor& tensor : base.tensors()) {
        if (tensor.name.find("down_proj") != std::string::npos ||
            tensor.name.starts_with("model.layers.1.self_attn."))
            kept.insert(tensor.name);
    }
    expect_quantised(base, out.path(), options, kept);
    // Transformers takes the list for all that it leaves as it is.
    const ModelFiles written = ModelFiles::open(out.path());
    EXPECT_EQ(four_bit_config(written.config(), "")->skip_modules,
              (std::vector<std::string>{"down_proj", "model.layers.1.self_attn", "lm_head"}));
}

TEST(QuantizeModel, RefusesByName) {
    const TempDir dir;
    testing::write_tiny_model(dir / "base", {});
    const ModelFiles base = ModelFiles::open(dir / "base");
    const auto refusal = [](const ModelFiles& files,
                            const QuantizeModelOptions& options) -> std::string {
        const TempDir out;
        try {
            write_four_bit_model(files, out.path(), options);
        } catch (const Error& error) {
            return error.what();
        }
        return "written";
    };
    QuantizeModelOptions options = options_of(QuantFormat::nf4, false);
    options.base.skip_modules = {"down_porj"};
    EXPECT_NE(refusal(base, options).find("skipped module down_porj is none of"),
              std::string::npos);
    options.base.skip_modules = {"_proj"};
    EXPECT_NE(refusal(base, options).find("nothing is left to quantise"), std::string::npos);
    const TempDir out;
    write_four_bit_model(base, out.path(), options_of(QuantFormat::nf4, false));
    EXPECT_NE(refusal(ModelFiles::open(out.path()), options_of(QuantFormat::nf4, true))
                  .find("is in 4 bits already"),
              std::string::npos);
}

// What Transformers and bitsandbytes wrote of the same model, part for part.
TEST(QuantizeModelGolden, IsWhatTransformersSaved) {
    GARAM_REQUIRE_DATA("golden/qlora");
    const auto golden = testing::data_dir() / "golden";
    const ModelFiles base = ModelFiles::open(golden / "stories260K-hf");
    const TempDir dir;
    write_four_bit_model(base, dir.path(), options_of(QuantFormat::nf4, true));
    const auto got = SafetensorsFile::open(dir / "model.safetensors");
    const auto want = SafetensorsFile::open(golden / "qlora/stories260K-nf4/model.safetensors");
    ASSERT_EQ(got->tensors().size(), want->tensors().size());
    int near = 0;
    for (const StoredTensor& tensor : want->tensors()) {
        const StoredTensor* ours = got->find(tensor.name);
        ASSERT_NE(ours, nullptr) << tensor.name;
        EXPECT_EQ(ours->type, tensor.type) << tensor.name;
        if (tensor.name.find(".quant_state.") != std::string::npos) {
            const auto parsed = [](const StoredTensor& state) {
                return Json::parse({reinterpret_cast<const char*>(state.data), state.bytes},
                                   state.name);
            };
            const Json a = parsed(*ours);
            const Json b = parsed(tensor);
            ASSERT_EQ(a.object().size(), b.object().size());
            for (std::size_t i = 0; i < a.object().size(); ++i) {
                const auto& [key, value] = b.object()[i];
                EXPECT_EQ(a.object()[i].first, key);
                if (key == "nested_offset") {
                    const auto offset = static_cast<float>(value.number());
                    EXPECT_LE(std::abs(static_cast<float>(a.object()[i].second.number()) - offset),
                              std::nextafter(offset, 1e30f) - offset);
                } else {
                    EXPECT_EQ(a.object()[i].second.dump(), value.dump());
                }
            }
            continue;
        }
        ASSERT_EQ(ours->shape, tensor.shape) << tensor.name;
        if (tensor.name.ends_with(".nested_absmax")) {
            // The offset's last unit.
            const std::vector<float> a = values_of(*ours);
            const std::vector<float> b = values_of(tensor);
            for (std::size_t i = 0; i < a.size(); ++i)
                EXPECT_NEAR(a[i], b[i], b[i] * 1e-6f);
        } else if (tensor.name.ends_with(".absmax")) {
            // bitsandbytes' processor code looks up 8-bit codes in a table, one off near midpoints.
            for (std::size_t i = 0; i < tensor.bytes; ++i) {
                const int off =
                    std::to_integer<int>(ours->data[i]) - std::to_integer<int>(tensor.data[i]);
                ASSERT_LE(std::abs(off), 1) << tensor.name;
                near += off != 0 ? 1 : 0;
            }
        } else {
            EXPECT_EQ(std::memcmp(ours->data, tensor.data, tensor.bytes), 0) << tensor.name;
        }
    }
    // One in 200, as in golden/nf4.
    EXPECT_LE(near, 3600 / 64 / 2);
}

}  // namespace
}  // namespace garam
