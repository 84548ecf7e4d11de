#include "garam/io/peft_adapter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "garam/core/json.h"
#include "garam/io/safetensors.h"
#include "io/mutation.h"
#include "io/refusal.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam {
namespace {

namespace fs = std::filesystem;
using testing::read_file;
using testing::TempDir;

const std::string kQ = "base_model.model.model.layers.0.self_attn.q_proj";

// An adapter of rank 2 on one module, with values that tests may change before they write it.
struct SmallAdapter {
    LoraSettings settings;
    std::vector<float> a = std::vector<float>(2 * 3, 0.5f);
    std::vector<float> b = std::vector<float>(4 * 2, -1.5f);

    SmallAdapter() {
        settings.r = 2;
        settings.lora_alpha = 16;
        settings.target_modules = {"q_proj"};
    }
    std::vector<std::pair<std::string, Tensor>> tensors() {
        return {{kQ + ".lora_A.weight", Tensor(a.data(), DType::f32, {2, 3}, DeviceKind::cpu)},
                {kQ + ".lora_B.weight", Tensor(b.data(), DType::f32, {4, 2}, DeviceKind::cpu)}};
    }
};

std::string refusal_of(const fs::path& folder) {
    return testing::refusal_naming(folder, [&] { read_peft_adapter(folder); });
}

TEST(PeftAdapter, Scaling) {
    LoraSettings settings;
    EXPECT_EQ(settings.scaling(), 1.0);
    settings.lora_alpha = 16;
    EXPECT_EQ(settings.scaling(), 2.0);
    settings.use_rslora = true;
    EXPECT_EQ(settings.scaling(), 16 / std::sqrt(8.0));
}

TEST(PeftAdapter, WhatIsWrittenReadsBack) {
    const TempDir dir;
    SmallAdapter adapter;
    adapter.settings.lora_alpha = 2.5;
    adapter.settings.lora_dropout = 0.05;
    adapter.settings.use_rslora = true;
    adapter.settings.target_modules = {"q_proj", "v_proj"};
    adapter.settings.base_model_name_or_path = "org/base";
    write_peft_adapter(dir.path(), adapter.settings, adapter.tensors());
    const PeftAdapter read = read_peft_adapter(dir.path());
    EXPECT_EQ(read.settings.r, 2);
    EXPECT_EQ(read.settings.lora_alpha, 2.5);
    EXPECT_EQ(read.settings.lora_dropout, 0.05);
    EXPECT_TRUE(read.settings.use_rslora);
    EXPECT_EQ(read.settings.target_modules, adapter.settings.target_modules);
    EXPECT_EQ(read.settings.base_model_name_or_path, "org/base");
    ASSERT_EQ(read.tensors.size(), 2u);
    EXPECT_EQ(read.tensors[0].name, kQ + ".lora_A.weight");
    EXPECT_EQ(read.tensors[0].shape, (Shape{2, 3}));
    EXPECT_EQ(read.tensors[0].values, adapter.a);
    EXPECT_EQ(read.tensors[1].values, adapter.b);
}

TEST(PeftAdapter, PatternsAreWrittenAndRanksReadByThem) {
    const TempDir dir;
    SmallAdapter adapter;
    adapter.settings.r = 8;
    adapter.settings.rank_pattern = {{"k_proj", 3}, {R"(layers\.0\..*q_proj)", 2}};
    adapter.settings.alpha_pattern = {{"q_proj", 0.5}};
    adapter.settings.target_modules = {R"(.*\.q_proj)"};
    adapter.settings.exclude_modules = {"lm_head"};
    write_peft_adapter(dir.path(), adapter.settings, adapter.tensors());
    Json config = Json::parse_file(dir / "adapter_config.json");
    EXPECT_EQ(config.at("rank_pattern").dump(), R"({"k_proj": 3, "layers\\.0\\..*q_proj": 2})");
    EXPECT_EQ(config.at("alpha_pattern").dump(), R"({"q_proj": 0.5})");
    EXPECT_EQ(config.at("target_modules").string(), R"(.*\.q_proj)");
    EXPECT_EQ(config.at("exclude_modules").dump(), R"(["lm_head"])");
    const PeftAdapter read = read_peft_adapter(dir.path());
    EXPECT_EQ(read.settings.rank_pattern, adapter.settings.rank_pattern);
    EXPECT_EQ(read.settings.alpha_pattern, adapter.settings.alpha_pattern);
    const LoraTargets targets(read.settings);
    EXPECT_EQ(targets.rank("model.layers.0.self_attn.q_proj"), 2);
    EXPECT_EQ(targets.scaling("model.layers.0.self_attn.q_proj"), 0.25);
    EXPECT_EQ(read.settings.target_modules,
              std::vector<std::string>{"model.layers.0.self_attn.q_proj"});

    adapter.settings.target_modules = {"q_proj"};
    adapter.settings.layers_to_transform = {0, 2};
    adapter.settings.layers_pattern = {"layers"};
    write_peft_adapter(dir.path(), adapter.settings, adapter.tensors());
    config = Json::parse_file(dir / "adapter_config.json");
    EXPECT_EQ(config.at("layers_to_transform").dump(), "[0, 2]");
    EXPECT_EQ(config.at("layers_pattern").dump(), R"(["layers"])");
}

TEST(PeftAdapter, TheConfigIsWrittenAsPeftDoes) {
    const TempDir dir;
    SmallAdapter adapter;
    write_peft_adapter(dir.path(), adapter.settings, adapter.tensors());
    const Json config = Json::parse_file(dir / "adapter_config.json");
    EXPECT_EQ(config.at("peft_type").string(), "LORA");
    EXPECT_EQ(config.at("task_type").string(), "CAUSAL_LM");
    EXPECT_TRUE(config.at("base_model_name_or_path").is_null());
    EXPECT_TRUE(config.at("lora_alpha").is_int());
    EXPECT_EQ(config.at("target_modules").dump(), R"(["q_proj"])");
    EXPECT_EQ(SafetensorsFile::open(dir / "adapter_model.safetensors")->metadata()[0],
              (std::pair<std::string, std::string>("format", "pt")));
    adapter.settings.target_modules = {"all-linear"};
    write_peft_adapter(dir.path(), adapter.settings, adapter.tensors());
    EXPECT_EQ(Json::parse_file(dir / "adapter_config.json").at("target_modules").string(),
              "all-linear");
    if (!fs::exists(testing::data_dir() / "golden/peft/case1_lora_r8_all")) return;
    // Every key that is written is one of PEFT's, with PEFT's value where it is a default.
    const Json golden =
        Json::parse_file(testing::data_dir() / "golden/peft/case1_lora_r8_all/adapter_config.json");
    for (const auto& [key, value] : config.object()) {
        ASSERT_NE(golden.find(key), nullptr) << key;
        if (key == "base_model_name_or_path" || key == "r" || key == "target_modules") continue;
        EXPECT_EQ(value.dump(), golden.at(key).dump()) << key;
    }
}

TEST(PeftAdapter, GoldenFoldersReadOrAreRefusedByName) {
    GARAM_REQUIRE_DATA("golden/peft");
    const fs::path golden = testing::data_dir() / "golden/peft";
    int read = 0;
    for (const std::string& name : testing::folders_in(golden)) {
        const fs::path folder = golden / name;
        if (!fs::exists(folder / "adapter_config.json")) continue;
        const std::string refusal = refusal_of(folder);
        EXPECT_EQ(refusal, "read") << name;
        if (refusal == "read") {
            ++read;
            const PeftAdapter adapter = read_peft_adapter(folder);
            const auto reference = SafetensorsFile::open(folder / "golden.safetensors");
            for (const AdapterTensor& tensor : adapter.tensors) {
                const StoredTensor* wanted = reference->find(tensor.name);
                ASSERT_NE(wanted, nullptr) << tensor.name;
                EXPECT_EQ(std::memcmp(tensor.values.data(), wanted->data, wanted->bytes), 0);
            }
        }
    }
    EXPECT_GE(read, 5);
}

TEST(PeftAdapter, MagnitudesStandBesideTheirPairs) {
    const TempDir dir;
    SmallAdapter adapter;
    adapter.settings.use_dora = true;
    write_peft_adapter(dir.path(), adapter.settings, adapter.tensors());
    EXPECT_NE(refusal_of(dir.path()).find("q_proj.lora_magnitude_vector is missing"),
              std::string::npos)
        << refusal_of(dir.path());
    std::vector<float> lengths(64, 1.5f);
    const auto with = [&](std::int64_t rows) {
        auto tensors = adapter.tensors();
        tensors.emplace_back(kQ + ".lora_magnitude_vector",
                             Tensor(lengths.data(), DType::f32, {rows}, DeviceKind::cpu));
        write_peft_adapter(dir.path(), adapter.settings, tensors);
        return refusal_of(dir.path());
    };
    EXPECT_EQ(with(4), "read");
    EXPECT_TRUE(read_peft_adapter(dir.path()).settings.use_dora);
    EXPECT_NE(with(5).find("has shape [5]"), std::string::npos);
}

TEST(PeftAdapter, HowTheBaseWasQuantisedIsKept) {
    const TempDir dir;
    SmallAdapter adapter;
    write_peft_adapter(dir.path(), adapter.settings, adapter.tensors());
    EXPECT_FALSE(read_peft_adapter(dir.path()).base_quantization.has_value());
    BaseQuantization quantize;
    quantize.format = QuantFormat::nf4;
    quantize.block = 128;
    quantize.double_quantization = true;
    quantize.skip_modules = {"down_proj"};
    write_peft_adapter(dir.path(), adapter.settings, adapter.tensors(), quantize);
    const std::optional<BaseQuantization> read = read_peft_adapter(dir.path()).base_quantization;
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->format, QuantFormat::nf4);
    EXPECT_EQ(read->block, 128);
    EXPECT_TRUE(read->double_quantization);
    EXPECT_EQ(read->skip_modules, quantize.skip_modules);
    // What nobody would write is an error, not a guess.
    for (const char* value : {"{", "3", R"({"quant_method": "gptq"})",
                              R"({"load_in_4bit": true, "bnb_4bit_block_size": 100})"}) {
        write_safetensors(dir / "adapter_model.safetensors", adapter.tensors(),
                          {{"garam.base_quantization", value}});
        EXPECT_NE(refusal_of(dir.path()).find("garam.base_quantization"), std::string::npos)
            << value;
    }
}

TEST(PeftAdapter, PatternsBecomeTheModulesOfTheTensors) {
    const TempDir dir;
    SmallAdapter adapter;
    write_peft_adapter(dir.path(), adapter.settings, adapter.tensors());
    for (const char* targets : {"null", "\".*q_proj\"", "\"all-linear\""}) {
        dir.write(
            "adapter_config.json",
            std::string(R"({"peft_type": "LORA", "r": 2, "target_modules": )") + targets + "}");
        const PeftAdapter read = read_peft_adapter(dir.path());
        EXPECT_EQ(read.settings.target_modules,
                  std::vector<std::string>{"model.layers.0.self_attn.q_proj"});
        EXPECT_EQ(read.settings.lora_alpha, 8) << "PEFT's default";
    }
}

// Each of these makes PEFT compute something else than plain LoRA.
TEST(PeftAdapter, SettingsThatChangeTheMathematicsAreRefusedByName) {
    const TempDir dir;
    SmallAdapter adapter;
    write_peft_adapter(dir.path(), adapter.settings, adapter.tensors());
    const Json good = Json::parse_file(dir / "adapter_config.json");
    const auto with = [&](const std::string& key, const std::string& value) {
        Json config = good;
        config.set(key, Json::parse(value, "test"));
        dir.write("adapter_config.json", config.dump());
        return refusal_of(dir.path());
    };
    const std::vector<std::pair<std::string, std::string>> refused = {
        {"use_qalora", "true"},
        {"use_bdlora", R"({"nblocks": 2})"},
        {"lora_bias", "true"},
        {"ensure_weight_tying", "true"},
        {"bias", "\"some\""},
        {"fan_in_fan_out", "true"},
        {"layer_replication", "[[0, 1]]"},
        {"trainable_token_indices", R"({"wte": [1]})"},
        {"target_parameters", R"(["experts"])"},
        {"alora_invocation_tokens", "[1, 2]"},
        {"megatron_config", R"({"a": 1})"},
        {"arrow_config", R"({"top_k": 3})"},
        {"kasa_config", R"({"beta": 1})"},
        {"monteclora_config", R"({"a": 1})"},
        {"velora_config", R"({"a": 1})"},
        {"loftq_config", R"({"loftq_bits": 4})"},
        {"init_lora_weights", "\"pissa\""},
        {"init_lora_weights", "\"olora\""},
        {"init_lora_weights", "\"loftq\""},
        {"peft_type", "\"LOHA\""}};
    for (const auto& [key, value] : refused) {
        const std::string refusal = with(key, value);
        EXPECT_NE(refusal.find("adapter_config.json: " + key + " = "), std::string::npos)
            << refusal;
        EXPECT_NE(refusal.find("not supported"), std::string::npos) << refusal;
    }
    const std::vector<std::pair<std::string, std::string>> harmless = {
        {"use_dora", "false"},
        {"layers_to_transform", "null"},
        {"modules_to_save", "[]"},
        {"rank_pattern", R"({"k_proj": 4})"},
        {"alpha_pattern", R"({"q_proj": 4})"},
        {"layers_to_transform", "[0]"},
        {"layers_to_transform", "1"},
        {"layers_pattern", "\"layers\""},
        {"exclude_modules", "\"lm_head\""},
        {"bias", "\"none\""},
        {"bias", "\"all\""},
        {"bias", "\"lora_only\""},
        {"init_lora_weights", "\"gaussian\""},
        {"init_lora_weights", "false"},
        {"qalora_group_size", "16"},
        {"a_key_of_tomorrow", "true"},
        {"peft_version", "\"9.0\""}};
    for (const auto& [key, value] : harmless)
        EXPECT_EQ(with(key, value), "read") << key;
    const std::vector<std::pair<std::string, std::string>> wrong = {
        {"r", "0"},
        {"r", "-1"},
        {"r", "\"8\""},
        {"r", "1.5"},
        {"lora_alpha", "\"a\""},
        {"lora_dropout", "1"},
        {"lora_dropout", "-0.1"},
        {"use_rslora", "1"},
        {"target_modules", "[1]"},
        {"target_modules", "{}"},
        {"base_model_name_or_path", "3"},
        {"rank_pattern", R"({"q_proj": 0})"},
        {"rank_pattern", R"({"q_proj": 1.5})"},
        {"rank_pattern", R"({"(": 2})"},
        {"alpha_pattern", R"({"q_proj": "a"})"},
        {"alpha_pattern", "[1]"},
        {"r", "9223372036854775807"}};
    for (const auto& [key, value] : wrong) {
        const std::string refusal = with(key, value);
        EXPECT_NE(refusal.find("adapter_config.json: " + key), std::string::npos) << refusal;
    }
}

TEST(PeftAdapter, MissingFilesSayWhatToDo) {
    const TempDir dir;
    EXPECT_REFUSED(dir.path(), "adapter_config.json: is missing; an adapter is a folder");
    dir.write("adapter_config.json", R"({"peft_type": "LORA", "r": 2})");
    EXPECT_REFUSED(dir.path(), "adapter_model.safetensors: is missing");
    dir.write("adapter_model.bin", "x");
    EXPECT_REFUSED(dir.path(), "adapter_model.bin, a PyTorch pickle, is not supported");
    dir.write("adapter_config.json", R"({"r": 2})");
    EXPECT_REFUSED(dir.path(), "\"peft_type\" is missing");
    dir.write("adapter_config.json", R"({"peft_type": "LORA"})");
    EXPECT_REFUSED(dir.path(), "\"r\" is missing");
    dir.write("adapter_config.json", "[]");
    EXPECT_REFUSED(dir.path(), "must be a JSON object");
    dir.write("adapter_config.json", "{");
    EXPECT_REFUSED(dir.path(), "not valid JSON");
}

TEST(PeftAdapter, TensorsThatDoNotFitAreNamed) {
    const TempDir dir;
    SmallAdapter adapter;
    const fs::path file = dir / "adapter_model.safetensors";
    write_peft_adapter(dir.path(), adapter.settings, adapter.tensors());
    const auto with = [&](const std::vector<std::pair<std::string, Tensor>>& tensors) {
        write_safetensors(file, tensors);
        return refusal_of(dir.path());
    };
    const auto good = adapter.tensors();
    const auto tensor = [&](Shape shape) {
        return Tensor(adapter.a.data(), DType::f32, shape, DeviceKind::cpu);
    };
    const auto expect_part = [](const std::string& refusal, const std::string& part) {
        EXPECT_NE(refusal.find(part), std::string::npos) << refusal << "\nlacks " << part;
    };
    expect_part(with({}), "holds no LoRA tensors");
    expect_part(with({good[0]}),
                "tensor " + kQ + ".lora_B.weight is missing beside " + kQ + ".lora_A");
    expect_part(with({good[1]}), "tensor " + kQ + ".lora_A.weight is missing beside");
    expect_part(with({{good[0].first, tensor({3, 2})}, good[1]}),
                kQ + ".lora_A.weight has shape [3, 2], but r is 2");
    expect_part(with({good[0], {good[1].first, tensor({2, 3})}}),
                kQ + ".lora_B.weight has shape [2, 3], but r is 2");
    expect_part(with({{good[0].first, tensor({2})}, good[1]}), "has shape [2], but r is 2");
    for (const char* name :
         {"model.embed_tokens.lora_embedding_A", "model.q_proj.lora_A.weight",
          "base_model.model.q.lora_magnitude_vector", "base_model.model.q.weight",
          "base_model.model..lora_A.weight.extra", "base_model.model.lora_A.weight"})
        expect_part(with({good[0], good[1], {name, tensor({2, 3})}}),
                    "tensor " + std::string(name) + " is not supported");
    EXPECT_EQ(
        with({good[0], good[1], {"base_model.model.lm_head.base_layer.weight", tensor({2, 3})}}),
        "read");
    EXPECT_EQ(read_peft_adapter(dir.path()).tensors.size(), 2u);
    // What PEFT saves of a base that has got more tokens.
    for (const std::string name : {"embed_tokens.weight", "embed_tokens.base_layer.weight",
                                   "embed_tokens.token_adapter.base_layer.weight"}) {
        const std::string key = "base_model.model.model." + name;
        EXPECT_EQ(with({good[0], good[1], {key, tensor({2, 3})}}), "read");
        const PeftAdapter resized = read_peft_adapter(dir.path());
        EXPECT_EQ(resized.tensors.size(), 2u);
        ASSERT_EQ(resized.embeddings.size(), 1u);
        EXPECT_EQ(resized.embeddings.front().name, key);
    }
    // A whole module where the settings name it.
    adapter.settings.modules_to_save = {"head"};
    write_peft_adapter(dir.path(), adapter.settings, good);
    EXPECT_EQ(with({good[0], good[1], {"base_model.model.lm_head.weight", tensor({2, 3})}}),
              "read");
    const PeftAdapter saved = read_peft_adapter(dir.path());
    EXPECT_EQ(saved.tensors.size(), 3u);
    EXPECT_EQ(saved.settings.modules_to_save, adapter.settings.modules_to_save);
    expect_part(with({good[0], good[1], {"base_model.model.embed.weight", tensor({2, 3})}}),
                "embed.weight is not supported");
    adapter.settings.trainable_token_indices = {5, 2, 9};
    write_peft_adapter(dir.path(), adapter.settings, good);
    const std::string tokens =
        "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta";
    EXPECT_EQ(with({good[0], good[1], {tokens, tensor({3, 2})}}), "read");
    EXPECT_EQ(read_peft_adapter(dir.path()).settings.trainable_token_indices,
              adapter.settings.trainable_token_indices);
    expect_part(with({good[0], good[1], {tokens, tensor({2, 3})}}), "names 3 tokens");
    // The embedding's pair.
    const std::string embedding = "base_model.model.embed.lora_embedding_";
    EXPECT_EQ(with({{embedding + "A", tensor({2, 3})}, {embedding + "B", tensor({3, 2})}}), "read");
    expect_part(with({{embedding + "A", tensor({2, 3})}}), embedding + "B is missing beside");
    adapter.b[5] = std::numeric_limits<float>::quiet_NaN();
    expect_part(with(good), "tensor " + kQ + ".lora_B.weight [4, 2]: element 5 is NaN");
}

TEST(PeftAdapter, HalfPrecisionIsWidened) {
    const TempDir dir;
    SmallAdapter adapter;
    write_peft_adapter(dir.path(), adapter.settings, adapter.tensors());
    std::vector<bfloat16> a(6, bfloat16(0.25f));
    std::vector<float16> b(8, float16(-3.0f));
    write_safetensors(
        dir / "adapter_model.safetensors",
        {{kQ + ".lora_A.weight", Tensor(a.data(), DType::bf16, {2, 3}, DeviceKind::cpu)},
         {kQ + ".lora_B.weight", Tensor(b.data(), DType::f16, {4, 2}, DeviceKind::cpu)}});
    const PeftAdapter read = read_peft_adapter(dir.path());
    EXPECT_EQ(read.tensors[0].values, std::vector<float>(6, 0.25f));
    EXPECT_EQ(read.tensors[1].values, std::vector<float>(8, -3.0f));
}

TEST(PeftAdapter, MutatedConfigsReadOrAreRefused) {
    const TempDir dir;
    SmallAdapter adapter;
    write_peft_adapter(dir.path(), adapter.settings, adapter.tensors());
    const fs::path config = dir / "adapter_config.json";
    const testing::MutationResult result = testing::try_mutations(
        read_file(config), config, 2000, 4, [&] { read_peft_adapter(dir.path()); });
    EXPECT_GT(result.opened, 50);
    EXPECT_GT(result.refused, 500);
}

}  // namespace
}  // namespace garam
