// Models written as GGUF, read back: the same weights bit for bit, the same config, and for Llama the
// bytes of llama.cpp's own converter.
#include "garam/models/gguf_export.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "garam/core/error.h"
#include "garam/io/gguf.h"
#include "garam/io/gguf_adapter.h"
#include "garam/io/gguf_metadata.h"
#include "garam/io/safetensors.h"
#include "garam/quant/gguf_quantize.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam {
namespace {

namespace fs = std::filesystem;
using testing::data_dir;
using testing::TempDir;

std::vector<float> values_of(const StoredTensor& tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.shape.elements()));
    read_tensor(tensor, values.data());
    return values;
}

GgufExportReport write(const ModelFiles& base, const fs::path& path, StoredType type,
                       const PeftAdapter* adapter = nullptr) {
    GgufExportOptions options;
    options.type = type;
    return write_gguf_model(base, adapter, "adapter", path, options);
}

class GgufExportFamily : public ::testing::TestWithParam<std::string> {};

TEST_P(GgufExportFamily, ReadsBackTheSame) {
    if (GetParam() == "absent") GTEST_SKIP() << "reference data is not here: golden/families";
    const fs::path folder = data_dir() / "golden/families" / GetParam();
    const ModelFiles base = ModelFiles::open(folder);
    const TempDir dir;
    if (GetParam() == "smollm3-nope") {
        // Its layer without RoPE is not where llama.cpp has one.
        EXPECT_THROW(write(base, dir / "m.gguf", StoredType::f32), Error);
        return;
    }
    const GgufMetadata metadata = gguf_metadata(base.config(), "config.json");
    EXPECT_EQ(gguf_metadata(Json::parse_file(folder / "config.transformers5.json"), "newer").keys,
              metadata.keys)
        << "both field styles say the same";
    for (const StoredType type : {StoredType::f32, StoredType::bf16}) {
        const bool is_f32_case = base.tensors()[0].type == StoredType::f32;
        const GgufExportReport report = write(base, dir / "m.gguf", type);
        EXPECT_EQ(report.bytes, static_cast<std::int64_t>(fs::file_size(dir / "m.gguf")));
        EXPECT_EQ(report.merged_tensors, 0);
        EXPECT_EQ(report.fallbacks, 0);
        const ModelFiles again = ModelFiles::open(dir / "m.gguf");
        const GgufMetadata told = gguf_metadata(again.config(), "m.gguf");
        EXPECT_EQ(told.keys, metadata.keys);
        EXPECT_EQ(told.tensors, metadata.tensors);
        EXPECT_EQ(again.config().at("model_type").string(),
                  base.config().at("model_type").string());
        EXPECT_EQ(again.tensors().size(), base.tensors().size());
        for (const StoredTensor& wanted : base.tensors()) {
            const StoredTensor& tensor = again.at(wanted.name);
            ASSERT_EQ(tensor.shape, wanted.shape) << wanted.name;
            EXPECT_EQ(tensor.type, wanted.shape.rank() == 1 ? StoredType::f32 : type);
            const std::vector<float> got = values_of(tensor);
            const std::vector<float> want = values_of(wanted);
            for (std::size_t i = 0; i < got.size(); ++i) {
                const float rounded = tensor.type == StoredType::bf16 && is_f32_case
                                          ? static_cast<float>(bfloat16(want[i]))
                                          : want[i];
                // 1 + w is rounded to fp32 where w is small.
                ASSERT_LE(std::abs(got[i] - rounded), tensor.one_added ? 0x1p-24f : 0.0f)
                    << wanted.name << " " << i;
            }
        }
    }
}

std::vector<std::string> families() {
    std::vector<std::string> names = testing::folders_in(data_dir() / "golden/families");
    if (names.empty()) names.emplace_back("absent");
    return names;
}

INSTANTIATE_TEST_SUITE_P(Families, GgufExportFamily, ::testing::ValuesIn(families()),
                         [](const auto& test) {
                             std::string name = test.param;
                             for (char& c : name) {
                                 if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                             }
                             return name;
                         });

const StoredTensor* named(const GgufFile& file, const std::string& name) {
    for (const StoredTensor& tensor : file.tensors()) {
        if (tensor.name == name) return &tensor;
    }
    return nullptr;
}

void expect_same_tensors(const GgufFile& got, const GgufFile& want) {
    EXPECT_EQ(got.tensors().size(), want.tensors().size());
    for (const StoredTensor& wanted : want.tensors()) {
        const StoredTensor* tensor = named(got, wanted.name);
        ASSERT_NE(tensor, nullptr) << wanted.name;
        EXPECT_EQ(tensor->shape, wanted.shape) << wanted.name;
        ASSERT_EQ(tensor->type, wanted.type) << wanted.name;
        EXPECT_EQ(std::memcmp(tensor->data, wanted.data, wanted.bytes), 0) << wanted.name;
    }
}

TEST(GgufExport, LlamaIsByteForByteTheConverters) {
    GARAM_REQUIRE_DATA("golden/gguf/llama-f32.gguf");
    const ModelFiles base = ModelFiles::open(data_dir() / "golden/families/llama-llama3rope-tied");
    const TempDir dir;
    for (const auto& [type, name] : {std::pair{StoredType::f32, "llama-f32.gguf"},
                                     std::pair{StoredType::f16, "llama-f16.gguf"}}) {
        write(base, dir / "m.gguf", type);
        const auto got = GgufFile::open(dir / "m.gguf");
        const auto want = GgufFile::open(data_dir() / "golden/gguf" / name);
        expect_same_tensors(*got, *want);
        for (const auto& [key, value] : want->keys()) {
            if (key.starts_with("tokenizer.") || key == "general.name") continue;
            ASSERT_NE(got->find(key), nullptr) << key;
            EXPECT_EQ(got->find(key)->dump(), value.dump()) << key;
        }
    }
    // From the GGUF form of the base the same file comes again.
    write(ModelFiles::open(data_dir() / "golden/gguf/llama-f32.gguf"), dir / "again.gguf",
          StoredType::f32);
    expect_same_tensors(*GgufFile::open(dir / "again.gguf"),
                        *GgufFile::open(data_dir() / "golden/gguf/llama-f32.gguf"));
}

TEST(GgufExport, AdaptersAreByteForByteTheConverters) {
    GARAM_REQUIRE_DATA("golden/gguf/llama-lora-f32.gguf");
    const fs::path folder = data_dir() / "golden/families/llama-llama3rope-tied";
    const fs::path golden = data_dir() / "golden/gguf/llama-lora-f32.gguf";
    const ModelFiles base = ModelFiles::open(folder);
    const PeftAdapter adapter = read_peft_adapter(folder / "adapter");
    const TempDir dir;
    write_gguf_adapter(dir / "a.gguf", adapter, "adapter", base);
    const auto got = GgufFile::open(dir / "a.gguf");
    const auto want = GgufFile::open(golden);
    expect_same_tensors(*got, *want);
    for (const char* key :
         {"general.type", "general.architecture", "adapter.type", "adapter.lora.alpha"})
        EXPECT_EQ(got->find(key)->dump(), want->find(key)->dump()) << key;

    for (const fs::path& file : {golden, dir / "a.gguf"}) {
        const PeftAdapter read = read_adapter(file, base);
        EXPECT_EQ(read.settings.r, adapter.settings.r);
        EXPECT_EQ(read.settings.scaling(), adapter.settings.scaling());
        EXPECT_EQ(read.settings.target_modules.size() * 2, adapter.tensors.size());
        ASSERT_EQ(read.tensors.size(), adapter.tensors.size());
        for (const AdapterTensor& tensor : adapter.tensors) {
            const auto found =
                std::find_if(read.tensors.begin(), read.tensors.end(),
                             [&](const AdapterTensor& t) { return t.name == tensor.name; });
            ASSERT_NE(found, read.tensors.end()) << tensor.name;
            EXPECT_EQ(found->shape, tensor.shape);
            EXPECT_EQ(found->values, tensor.values) << tensor.name;
        }
    }
}

TEST(GgufExport, AdaptersOfEveryFamilyRoundTrip) {
    GARAM_REQUIRE_DATA("golden/families");
    const TempDir dir;
    for (const std::string& name : testing::folders_in(data_dir() / "golden/families")) {
        if (name == "smollm3-nope") continue;
        const fs::path folder = data_dir() / "golden/families" / name;
        const ModelFiles base = ModelFiles::open(folder);
        const auto golden = SafetensorsFile::open(folder / "golden.safetensors");
        PeftAdapter adapter;
        adapter.settings.r = 4;
        adapter.settings.lora_alpha = 8;
        adapter.settings.use_rslora = true;
        for (const StoredTensor& tensor : golden->tensors()) {
            if (!tensor.name.starts_with("base_model.model.")) continue;
            adapter.tensors.push_back({tensor.name, tensor.shape, values_of(tensor)});
        }
        ASSERT_FALSE(adapter.tensors.empty()) << name;
        write_gguf_adapter(dir / "a.gguf", adapter, name, base);
        const PeftAdapter read = read_gguf_adapter(dir / "a.gguf", base);
        EXPECT_FALSE(read.settings.use_rslora);
        EXPECT_NEAR(read.settings.scaling(), adapter.settings.scaling(), 1e-6);
        ASSERT_EQ(read.tensors.size(), adapter.tensors.size());
        for (std::size_t i = 0; i < adapter.tensors.size(); ++i) {
            EXPECT_EQ(read.tensors[i].name, adapter.tensors[i].name);
            EXPECT_EQ(read.tensors[i].values, adapter.tensors[i].values) << adapter.tensors[i].name;
        }
    }
}

// A Llama of one layer with rows of 256, as a Hugging Face folder in fp32.
class WideLlama {
  public:
    explicit WideLlama(std::int64_t heads = 4, std::int64_t vocab = 16) {
        dir_.write("config.json", R"({"model_type": "llama", "hidden_size": 256,
            "intermediate_size": 288, "num_hidden_layers": 1, "num_attention_heads": )" +
                                      std::to_string(heads) +
                                      R"(, "head_dim": 64, "vocab_size": )" +
                                      std::to_string(vocab) +
                                      R"(, "max_position_embeddings": 32, "rms_norm_eps": 1e-5,
            "tie_word_embeddings": false})");
        add("model.embed_tokens.weight", {vocab, 256});
        add("lm_head.weight", {vocab, 256});
        add("model.norm.weight", {256});
        const std::string layer = "model.layers.0.";
        add(layer + "input_layernorm.weight", {256});
        add(layer + "post_attention_layernorm.weight", {256});
        for (const char* name : {"q_proj", "k_proj", "v_proj"})
            add(layer + "self_attn." + name + ".weight", {heads * 64, 256});
        add(layer + "self_attn.o_proj.weight", {256, heads * 64});
        add(layer + "mlp.gate_proj.weight", {288, 256});
        add(layer + "mlp.up_proj.weight", {288, 256});
        add(layer + "mlp.down_proj.weight", {256, 288});
        std::vector<std::pair<std::string, Tensor>> tensors;
        for (auto& [name, shape, values] : held_)
            tensors.emplace_back(name, Tensor(values.data(), DType::f32, shape, DeviceKind::cpu));
        write_safetensors(dir_ / "model.safetensors", tensors);
    }
    ModelFiles open() const { return ModelFiles::open(dir_.path()); }
    const TempDir& dir() const { return dir_; }

  private:
    struct Held {
        std::string name;
        Shape shape;
        std::vector<float> values;
    };
    void add(const std::string& name, const Shape& shape) {
        std::normal_distribution<float> normal(0, 0.02f);
        Held held{name, shape, {}};
        held.values.resize(static_cast<std::size_t>(shape.elements()));
        for (float& value : held.values)
            value = normal(generator_);
        held.values[0] = -0.0f;
        held_.push_back(std::move(held));
    }
    TempDir dir_;
    std::mt19937 generator_{11};
    std::vector<Held> held_;
};

TEST(GgufExport, BlockTypesAndWhatIsLeftWider) {
    const WideLlama model;
    const ModelFiles base = model.open();
    const TempDir dir;
    const std::string layer = "model.layers.0.";
    for (const StoredType type : {StoredType::q8_0, StoredType::q4_0, StoredType::q4_k}) {
        SCOPED_TRACE(name_of(type));
        const GgufExportReport report = write(base, dir / "m.gguf", type);
        const ModelFiles again = ModelFiles::open(dir / "m.gguf");
        EXPECT_EQ(again.at("model.norm.weight").type, StoredType::f32);
        EXPECT_EQ(again.at("model.embed_tokens.weight").type, StoredType::q8_0);
        EXPECT_EQ(again.at("lm_head.weight").type, StoredType::q8_0);
        EXPECT_EQ(again.at(layer + "self_attn.q_proj.weight").type, type);
        // 288 is 9 blocks of 32 and no whole one of 256.
        const bool wide = type == StoredType::q4_k;
        EXPECT_EQ(again.at(layer + "mlp.down_proj.weight").type, wide ? StoredType::q8_0 : type);
        EXPECT_EQ(report.fallbacks, wide ? 1 : 0);
        for (const StoredTensor& wanted : base.tensors()) {
            const std::vector<float> want = values_of(wanted);
            const std::vector<float> got = values_of(again.at(wanted.name));
            double error = 0;
            double power = 0;
            for (std::size_t i = 0; i < want.size(); ++i) {
                error += std::pow(static_cast<double>(got[i]) - static_cast<double>(want[i]), 2);
                power += std::pow(static_cast<double>(want[i]), 2);
            }
            const StoredType own = again.at(wanted.name).type;
            // As tests/io/gguf_quantize_test.cpp has them for normal values.
            EXPECT_LE(error / power, own == StoredType::f32    ? 0
                                     : own == StoredType::q8_0 ? 5e-5
                                     : own == StoredType::q4_0 ? 0.009
                                                               : 0.0062)
                << wanted.name;
        }
    }
}

TEST(GgufExport, PiecesOfALargeMatrixAreWholeHeads) {
    const WideLlama model(520, 33000);  // q has 33280 rows of 256: two pieces and a rest
    const ModelFiles base = model.open();
    std::vector<std::int64_t> told;
    GgufExportOptions options;
    options.type = StoredType::bf16;
    std::int64_t total = 0;
    options.progress = [&](std::int64_t done, std::int64_t all) {
        told.push_back(done);
        total = all;
    };
    const TempDir dir;
    write_gguf_model(base, nullptr, "", dir / "m.gguf", options);
    EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
    EXPECT_LE(told.back(), total);
    // Once more from the permuted file.
    write(ModelFiles::open(dir / "m.gguf"), dir / "n.gguf", StoredType::f32);
    const ModelFiles again = ModelFiles::open(dir / "n.gguf");
    for (const char* name :
         {"model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.o_proj.weight",
          "model.embed_tokens.weight"}) {
        const std::vector<float> want = values_of(base.at(name));
        const std::vector<float> got = values_of(again.at(name));
        ASSERT_EQ(got.size(), want.size());
        for (std::size_t i = 0; i < got.size(); ++i)
            ASSERT_EQ(got[i], static_cast<float>(bfloat16(want[i]))) << name << " " << i;
    }
}

TEST(GgufExport, MergesBeforeItRounds) {
    const WideLlama model;
    const ModelFiles base = model.open();
    const std::string module = "model.layers.0.self_attn.q_proj";
    PeftAdapter adapter;
    adapter.settings.r = 1;
    adapter.settings.lora_alpha = 2;
    std::vector<float> a(256);
    std::vector<float> b(256);
    for (std::size_t i = 0; i < 256; ++i) {
        a[i] = 0.01f * static_cast<float>(i % 7);
        b[i] = 0.02f * static_cast<float>(i % 5);
    }
    adapter.tensors = {{"base_model.model." + module + ".lora_A.weight", {1, 256}, a},
                       {"base_model.model." + module + ".lora_B.weight", {256, 1}, b}};
    const TempDir dir;
    const GgufExportReport report = write(base, dir / "m.gguf", StoredType::f32, &adapter);
    EXPECT_EQ(report.merged_tensors, 1);
    const std::vector<float> got =
        values_of(ModelFiles::open(dir / "m.gguf").at(module + ".weight"));
    const std::vector<float> want = values_of(base.at(module + ".weight"));
    for (std::size_t o = 0; o < 256; ++o) {
        for (std::size_t i = 0; i < 256; ++i)
            ASSERT_EQ(got[o * 256 + i], static_cast<float>(static_cast<double>(want[o * 256 + i]) +
                                                           2.0 * static_cast<double>(b[o]) *
                                                               static_cast<double>(a[i])));
    }
    EXPECT_TRUE(std::signbit(values_of(ModelFiles::open(dir / "m.gguf").at("lm_head.weight"))[0]))
        << "-0 stays -0";
    adapter.tensors.pop_back();
    EXPECT_THROW(write(base, dir / "n.gguf", StoredType::f32, &adapter), Error);
    EXPECT_FALSE(fs::exists(dir / "n.gguf"));
}

TEST(GgufExport, WhatGgufCannotHoldIsNamed) {
    const auto refusal = [](const std::string& config) -> std::string {
        try {
            gguf_metadata(Json::parse(config, "config"), "config.json");
        } catch (const Error& error) {
            return error.what();
        }
        return "taken";
    };
    const auto llama = [&](const std::string& more, const std::string& type = "llama") {
        return refusal(R"({"model_type": ")" + type +
                       R"(", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                       "num_attention_heads": 4, "vocab_size": 32, "max_position_embeddings": 128)" +
                       more + "}");
    };
    EXPECT_EQ(llama(""), "taken");
    const auto expect = [](const std::string& message, const std::string& part) {
        EXPECT_NE(message.find(part), std::string::npos) << message;
        EXPECT_EQ(message.find("config.json: "), 0u) << message;
    };
    expect(llama("", "bert"), "model_type \"bert\" cannot be written as GGUF");
    expect(llama(R"(, "rope_scaling": {"rope_type": "dynamic", "factor": 2})"), "\"dynamic\"");
    expect(llama(R"(, "rope_scaling": {"rope_type": "llama3", "factor": 2})", "qwen2"),
           "\"llama3\" cannot be written as GGUF for this family");
    expect(llama(R"(, "rope_scaling": {"rope_type": "yarn", "factor": 2, "mscale": 1})"),
           "mscale cannot be written");
    expect(llama(R"(, "rope_scaling": {"rope_type": "linear"})"), "factor is missing");
    expect(llama(R"(, "num_hidden_layers": 100000000)"), "is more than 65536");
    expect(llama(R"(, "hidden_size": -1)"), "hidden_size is -1");
    expect(llama(R"(, "partial_rotary_factor": 0.5)"), "partial_rotary_factor");
    expect(llama(R"(, "use_sliding_window": true, "sliding_window": 8)", "qwen2"),
           "use_sliding_window");
    expect(llama(R"(, "no_rope_layers": [1, 0])", "smollm3"), "no_rope_layers cannot be written");
    expect(llama(R"(, "layer_types": ["full_attention"])", "gemma3_text"),
           "layer_types has 1 entries for 2 layers");
    EXPECT_EQ(refusal("[]"), "config.json must be an object, not array");
}

}  // namespace
}  // namespace garam
