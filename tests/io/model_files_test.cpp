#include "garam/io/model_files.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>

#include "garam/core/error.h"
#include "garam/io/gguf.h"
#include "garam/io/gguf_metadata.h"
#include "garam/io/safetensors.h"
#include "io/gguf_builder.h"
#include "io/mutation.h"
#include "io/refusal.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam {
namespace {

namespace fs = std::filesystem;
using testing::GgufBuilder;
using testing::TempDir;

std::string refusal_of(const fs::path& path) {
    return testing::refusal_naming(path, [&] { ModelFiles::open(path); });
}

std::vector<float> values_of(const StoredTensor& tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.shape.elements()));
    read_tensor(tensor, values.data());
    return values;
}

void write_tensors(const fs::path& path, const std::vector<std::string>& names) {
    float value = 1;
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const std::string& name : names)
        tensors.emplace_back(name, Tensor(&value, DType::f32, {1}, DeviceKind::cpu));
    write_safetensors(path, tensors);
}

TEST(ModelFiles, FolderWithOneFile) {
    const TempDir dir;
    dir.write("config.json", R"({"model_type": "llama", "_name_or_path": "org/name"})");
    write_tensors(dir / "model.safetensors", {"model.norm.weight"});
    ModelFiles files = ModelFiles::open(dir.path());
    EXPECT_FALSE(files.is_gguf());
    EXPECT_EQ(files.gguf(), nullptr);
    EXPECT_EQ(files.name(), "org/name");
    EXPECT_EQ(files.config().at("model_type").string(), "llama");
    EXPECT_EQ(files.at("model.norm.weight").shape, Shape{1});
    EXPECT_EQ(files.find("lm_head.weight"), nullptr);
    try {
        files.at("lm_head.weight");
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()),
                  dir.path().string() + ": tensor lm_head.weight is missing");
    }
    const ModelFiles moved = std::move(files);
    EXPECT_NE(moved.find("model.norm.weight"), nullptr);
}

TEST(ModelFiles, ShardedFolder) {
    const TempDir dir;
    dir.write("config.json", "{}");
    write_tensors(dir / "model-00001-of-00002.safetensors", {"a", "b"});
    write_tensors(dir / "model-00002-of-00002.safetensors", {"c"});
    const auto with_map = [&](std::string_view map) {
        dir.write("model.safetensors.index.json", map);
        return refusal_of(dir.path());
    };
    EXPECT_EQ(with_map(R"({"metadata": {}, "weight_map": {
        "a": "model-00001-of-00002.safetensors", "b": "model-00001-of-00002.safetensors",
        "c": "model-00002-of-00002.safetensors"}})"),
              "read");
    const ModelFiles files = ModelFiles::open(dir.path());
    EXPECT_EQ(files.tensors().size(), 3u);
    EXPECT_EQ(values_of(files.at("c"))[0], 1.0f);

    const auto expect_part = [&](std::string_view map, const char* part) {
        const std::string refusal = with_map(map);
        EXPECT_NE(refusal.find(part), std::string::npos) << refusal << "\nlacks " << part;
    };
    expect_part(R"({"weight_map": {"d": "model-00002-of-00002.safetensors"}})",
                "tensor d is not in model-00002-of-00002.safetensors");
    expect_part(R"({"weight_map": {"a": "model-00003.safetensors"}})",
                "names model-00003.safetensors, which is missing");
    for (const char* name : {"../x", "/etc/passwd", "", "..", "a\\\\b", "sub/model.safetensors",
                             "x\\u0000.safetensors"})
        expect_part(R"({"weight_map": {"a": ")" + std::string(name) + "\"}}", "no file name");
    expect_part(R"({"weight_map": {"a": 1}})", "a must be a string");
    expect_part(R"({"weight_map": []})", "weight_map must be an object");
    expect_part(R"({"weight_map": {}})", "weight_map is empty");
    expect_part(R"({})", "\"weight_map\" is missing");
    expect_part("{", "not valid JSON");
}

TEST(ModelFiles, FoldersThatHoldNoModelSayWhy) {
    const TempDir dir;
    EXPECT_REFUSED(dir.path() / "absent", "no such file or folder");
    EXPECT_REFUSED(dir.write("file.txt", "x"), "a model is a Hugging Face folder");
    fs::create_directory(dir / "empty");
    EXPECT_REFUSED(dir / "empty", "config.json: is missing");
    dir.write("gguf/model.gguf", "x");
    EXPECT_REFUSED(dir / "gguf", "give the .gguf file itself");
    dir.write("adapter/adapter_config.json", "{}");
    EXPECT_REFUSED(dir / "adapter", "holds an adapter, not a model");
    dir.write("list/config.json", "[]");
    EXPECT_REFUSED(dir / "list", "must be a JSON object");
    dir.write("bare/config.json", "{}");
    EXPECT_REFUSED(dir / "bare", "has neither model.safetensors nor model.safetensors.index.json");
    dir.write("bin/config.json", "{}");
    dir.write("bin/pytorch_model.bin", "x");
    EXPECT_REFUSED(dir / "bin", "convert them to safetensors");
    dir.write("gptq/config.json", R"({"quantization_config": {"quant_method": "gptq"}})");
    EXPECT_REFUSED(dir / "gptq", "checkpoints quantised by gptq are not supported");
}

TEST(ModelFiles, GoldenFoldersOpen) {
    GARAM_REQUIRE_DATA("golden/families");
    int opened = 0;
    const fs::path families = testing::data_dir() / "golden/families";
    for (const std::string& name : testing::folders_in(families)) {
        const ModelFiles files = ModelFiles::open(families / name);
        EXPECT_TRUE(files.config().find("model_type") != nullptr) << name;
        for (const StoredTensor& tensor : files.tensors())
            check_finite(tensor);
        ++opened;
    }
    EXPECT_GT(opened, 0);
}

// The GGUF form of a model gives the same config and the same weights as its Hugging Face form.
class ModelFilesGguf : public ::testing::TestWithParam<const char*> {};

TEST_P(ModelFilesGguf, EqualsTheHuggingFaceForm) {
    GARAM_REQUIRE_DATA("golden/gguf/llama-f32.gguf");
    const fs::path golden = testing::data_dir() / "golden";
    const ModelFiles gguf = ModelFiles::open(golden / "gguf" / GetParam());
    const ModelFiles folder = ModelFiles::open(golden / "families/llama-llama3rope-tied");
    EXPECT_TRUE(gguf.is_gguf());
    EXPECT_NE(gguf.gguf()->find("tokenizer.ggml.tokens"), nullptr);
    EXPECT_EQ(gguf.name(), "");
    for (const char* key :
         {"model_type", "architectures", "hidden_size", "intermediate_size", "num_hidden_layers",
          "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size", "rms_norm_eps",
          "rope_theta", "max_position_embeddings", "tie_word_embeddings", "bos_token_id",
          "eos_token_id", "pad_token_id", "hidden_act", "attention_bias", "mlp_bias"}) {
        const Json& wanted = folder.config().at(key);
        const Json& got = gguf.config().at(key);
        if (wanted.is_number()) {
            EXPECT_EQ(got.number(), wanted.number()) << key;
        } else {
            EXPECT_EQ(got.dump(), wanted.dump()) << key;
        }
    }
    EXPECT_EQ(gguf.tensors().size(), folder.tensors().size());
    for (const StoredTensor& wanted : folder.tensors()) {
        const StoredTensor& tensor = gguf.at(wanted.name);
        ASSERT_EQ(tensor.shape, wanted.shape) << wanted.name;
        const std::vector<float> got_values = values_of(tensor);
        const std::vector<float> wanted_values = values_of(wanted);
        for (std::size_t i = 0; i < got_values.size(); ++i) {
            // The weights are bf16: exact in f16 too, unless below its subnormal step of 2^-24.
            const float allowed = tensor.type == StoredType::f16 ? 0x1p-25f : 0.0f;
            ASSERT_LE(std::fabs(got_values[i] - wanted_values[i]), allowed) << wanted.name;
        }
    }
    // Unscaled inverse frequency / divisor must equal the reference's scaled one.
    const Json& scaling = gguf.config().at("rope_scaling");
    EXPECT_EQ(scaling.at("rope_type").string(), "garam_divisors");
    const auto reference =
        SafetensorsFile::open(golden / "families/llama-llama3rope-tied" / "golden.safetensors");
    const StoredTensor* inv_freq = reference->find("rope.inv_freq");
    ASSERT_NE(inv_freq, nullptr);
    const std::vector<float> wanted = values_of(*inv_freq);
    const Json::Array& divisors = scaling.at("garam_rope_divisors").array();
    ASSERT_EQ(divisors.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        const double exponent = static_cast<double>(2 * i) / 16.0;
        // Two roundings to float (the power and the quotient) in the reference, none here.
        EXPECT_NEAR(std::pow(500.0, -exponent) / divisors[i].number(), wanted[i],
                    static_cast<double>(wanted[i]) * 0x1p-22);
    }
}

INSTANTIATE_TEST_SUITE_P(Types, ModelFilesGguf,
                         ::testing::Values("llama-f32.gguf", "llama-f16.gguf"),
                         [](const auto& test) { return std::string(test.param).substr(6, 3); });

TEST(ModelFiles, AGgufAdapterIsNoModel) {
    GARAM_REQUIRE_DATA("golden/gguf/llama-lora-f32.gguf");
    EXPECT_REFUSED(testing::data_dir() / "golden/gguf/llama-lora-f32.gguf",
                   "holds a GGUF adapter, not a model");
}

// A Llama with 2 heads of 2 (1 for k and v), one layer.
GgufBuilder small_llama(const std::string& left_out = "") {
    GgufBuilder builder;
    builder.key_text("general.architecture", "llama");
    const auto key = [&](const char* name, std::uint32_t value) {
        if (name != left_out) builder.key_u32(name, value);
    };
    key("llama.context_length", 16);
    key("llama.embedding_length", 4);
    key("llama.block_count", 1);
    key("llama.feed_forward_length", 3);
    key("llama.attention.head_count", 2);
    key("llama.attention.head_count_kv", 1);
    if (left_out != "llama.attention.layer_norm_rms_epsilon")
        builder.key_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    const auto tensor = [&](const char* name, std::vector<std::uint64_t> extents) {
        std::uint64_t elements = 1;
        for (const std::uint64_t extent : extents)
            elements *= extent;
        if (name == left_out) return;
        std::vector<float> values(elements);
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = static_cast<float>(i);
        builder.tensor_f32(name, std::move(extents), values);
    };
    tensor("token_embd.weight", {4, 5});
    tensor("output_norm.weight", {4});
    tensor("output.weight", {4, 5});
    tensor("blk.0.attn_q.weight", {4, 4});
    tensor("blk.0.attn_k.weight", {4, 2});
    tensor("blk.0.ffn_down.weight", {3, 4});
    return builder;
}

std::string gguf_refusal(const GgufBuilder& builder) {
    const TempDir dir;
    return refusal_of(dir.write("m.gguf", builder.build()));
}

#define EXPECT_GGUF_REFUSED(builder, part)                                                 \
    do {                                                                                   \
        const std::string refusal = gguf_refusal(builder);                                 \
        EXPECT_NE(refusal.find(part), std::string::npos) << refusal << "\nlacks " << part; \
    } while (false)

TEST(ModelFiles, GgufDefaults) {
    const TempDir dir;
    GgufBuilder builder = small_llama();
    builder.tensor_f32("blk.0.attn_q.bias", {4}, {0, 1, 2, 3});
    builder.tensor_f32("blk.0.ffn_up.bias", {3}, {0, 1, 2});
    const ModelFiles files = ModelFiles::open(dir.write("m.gguf", builder.build()));
    const Json& config = files.config();
    EXPECT_EQ(config.at("vocab_size").integer(), 5);
    EXPECT_EQ(config.at("head_dim").integer(), 2);
    EXPECT_EQ(config.at("rope_theta").number(), 10000.0);
    EXPECT_TRUE(config.at("rope_scaling").is_null());
    EXPECT_FALSE(config.at("tie_word_embeddings").boolean());
    EXPECT_TRUE(config.at("attention_bias").boolean());
    EXPECT_TRUE(config.at("mlp_bias").boolean());
    EXPECT_EQ(config.at("rms_norm_eps").dump(), "1e-05");
    EXPECT_EQ(config.find("bos_token_id"), nullptr);
    // Heads of two rows hold one pair: the permutation is the identity.
    EXPECT_EQ(files.at("model.layers.0.self_attn.q_proj.bias").permuted_heads, 2);
    EXPECT_EQ(files.at("model.layers.0.self_attn.k_proj.weight").permuted_heads, 1);
    EXPECT_EQ(files.at("model.layers.0.mlp.down_proj.weight").shape, (Shape{4, 3}));
    EXPECT_EQ(values_of(files.at("lm_head.weight"))[19], 19.0f);
}

TEST(ModelFiles, GgufRopeScaling) {
    const auto scaling_of = [](const GgufBuilder& builder) {
        const TempDir dir;
        return ModelFiles::open(dir.write("m.gguf", builder.build()))
            .config()
            .at("rope_scaling")
            .dump();
    };
    EXPECT_EQ(scaling_of(small_llama()
                             .key_text("llama.rope.scaling.type", "linear")
                             .key_f32("llama.rope.scaling.factor", 4.0f)),
              R"({"rope_type": "linear", "factor": 4.0})");
    EXPECT_EQ(scaling_of(small_llama().key_f32("llama.rope.scale_linear", 2.5f)),
              R"({"rope_type": "linear", "factor": 2.5})");
    EXPECT_EQ(scaling_of(small_llama()
                             .key_text("llama.rope.scaling.type", "none")
                             .key_f32("llama.rope.scaling.factor", 4.0f)),
              "null");
    EXPECT_EQ(scaling_of(small_llama().tensor_f32("rope_freqs.weight", {1}, {8.0f})),
              R"({"rope_type": "garam_divisors", "garam_rope_divisors": [8.0]})");
    EXPECT_EQ(scaling_of(small_llama()
                             .key_text("llama.rope.scaling.type", "yarn")
                             .key_f32("llama.rope.scaling.factor", 4.0f)
                             .key_u32("llama.rope.scaling.original_context_length", 8)),
              R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8})");
    EXPECT_GGUF_REFUSED(small_llama().key_text("llama.rope.scaling.type", "ntk"),
                        "RoPE scaling ntk is not supported");
    EXPECT_GGUF_REFUSED(small_llama().tensor_f32("rope_freqs.weight", {2}, {8.0f, 1.0f}),
                        "rope_freqs.weight must be f32 [1], not f32 [2]");
    EXPECT_GGUF_REFUSED(small_llama().tensor_f32("rope_freqs.weight", {1}, {0.0f}), "not positive");
    EXPECT_GGUF_REFUSED(small_llama().tensor_f32("rope_freqs.weight", {1}, {NAN}),
                        "rope_freqs.weight [1]: element 0 is NaN");
}

TEST(ModelFiles, GgufMissingKeysAreNamed) {
    for (const char* key : {"llama.context_length", "llama.embedding_length", "llama.block_count",
                            "llama.feed_forward_length", "llama.attention.head_count",
                            "llama.attention.layer_norm_rms_epsilon"})
        EXPECT_GGUF_REFUSED(small_llama(key), "key " + std::string(key) + " is missing");
    EXPECT_GGUF_REFUSED(GgufBuilder(), "key general.architecture is missing");
    EXPECT_GGUF_REFUSED(small_llama("token_embd.weight"), "key llama.vocab_size is missing");
}

TEST(ModelFiles, GgufOfOtherModelsAreRefused) {
    GgufBuilder other;
    other.key_text("general.architecture", "bert");
    EXPECT_GGUF_REFUSED(other,
                        "architecture bert is not supported from GGUF; supported are llama, qwen2");
    EXPECT_GGUF_REFUSED(small_llama().key_u32("llama.expert_count", 8), "mixture-of-experts");
    EXPECT_GGUF_REFUSED(small_llama().key_u32("split.count", 2),
                        "must end in -00001-of-00002.gguf");
    EXPECT_GGUF_REFUSED(small_llama().key_u32("llama.rope.dimension_count", 1),
                        "llama.rope.dimension_count is 1");
    EXPECT_GGUF_REFUSED(small_llama().key_u32("llama.attention.value_length", 4),
                        "llama.attention.value_length is 4");
    EXPECT_GGUF_REFUSED(
        small_llama("llama.attention.head_count_kv").key_u32("llama.attention.head_count_kv", 0),
        "must be positive");
    EXPECT_GGUF_REFUSED(
        small_llama("llama.embedding_length").key_text("llama.embedding_length", "4"),
        "llama.embedding_length must be a whole number");
    EXPECT_GGUF_REFUSED(
        small_llama("llama.attention.head_count").key_u32("llama.attention.head_count", 3),
        "no multiple of llama.attention.head_count 3");
}

TEST(ModelFiles, GgufSizesBeyondTheFileAreRefused) {
    // A list of layers would be as long.
    EXPECT_GGUF_REFUSED(small_llama("llama.block_count").key_u32("llama.block_count", 7),
                        "key llama.block_count is 7, and there are 6 tensors");
    const auto with_u64 = [](const char* key, std::uint64_t value) {
        return small_llama(key).key_raw(key, 10, testing::Bytes().put(value).str());
    };
    // The product of both is 2^64.
    EXPECT_GGUF_REFUSED(
        with_u64("llama.attention.head_count", std::uint64_t{1} << 62)
            .key_u32("llama.attention.key_length", 4),
        "key llama.attention.head_count is 4611686018427387904, more than 16777216");
    EXPECT_GGUF_REFUSED(
        with_u64("llama.attention.key_length", std::uint64_t{1} << 62),
        "key llama.attention.key_length is 4611686018427387904, more than 16777216");
    EXPECT_GGUF_REFUSED(with_u64("llama.embedding_length", std::uint64_t{1} << 62),
                        "key llama.embedding_length is 4611686018427387904, more than 16777216");
}

TEST(ModelFiles, GgufTensorsThatDoNotBelongAreNamed) {
    for (const char* name :
         {"blk.0.ffn_gate_exps.weight", "blk.00.attn_v.weight", "blk.x.attn_v.weight",
          "blk.0.attn_v", "blk.0.attn_v.scale", "blk.", "position_embd.weight"})
        EXPECT_GGUF_REFUSED(small_llama().tensor_f32(name, {1}, {1}),
                            "tensor " + std::string(name) + " is not one of a llama model");
    EXPECT_GGUF_REFUSED(small_llama().tensor_f32("blk.1.attn_v.weight", {1}, {1}),
                        "tensor blk.1.attn_v.weight lies beyond llama.block_count 1");
    EXPECT_GGUF_REFUSED(
        small_llama("blk.0.attn_k.weight").tensor_f32("blk.0.attn_k.weight", {1, 3}, {1, 2, 3}),
        "self_attn.k_proj.weight has shape [3, 1], its 1 heads of 2 need 2 rows");
}

TEST(ModelFiles, MutatedGgufModelsOpenOrAreRefused) {
    const TempDir dir;
    const fs::path path = dir / "m.gguf";
    const testing::MutationResult result =
        testing::try_mutations(small_llama().build(), path, 3000, 3, [&] {
            const ModelFiles files = ModelFiles::open(path);
            for (const StoredTensor& tensor : files.tensors())
                values_of(tensor);
        });
    EXPECT_GT(result.opened, 100);
    EXPECT_GT(result.refused, 1000);
}

// A file of each family with its tensors of zeros, as garam writes it.
std::string small_model(const GgufArchitecture& family, const TempDir& dir) {
    Json config = Json::parse(R"({"hidden_size": 4, "intermediate_size": 3, "num_hidden_layers": 4,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "vocab_size": 5,
        "max_position_embeddings": 16, "sliding_window": 8})",
                              "config");
    config.set("model_type", family.model_type);
    if (family.name == "phi3")
        config.set("rope_scaling",
                   Json(Json::Object{{"rope_type", "longrope"},
                                     {"long_factor", Json(Json::Array{2.0, 4.0})},
                                     {"short_factor", Json(Json::Array{1.0, 1.5})}}));
    const GgufMetadata metadata = gguf_metadata(config, "config");
    std::vector<GgufWriter::Entry> entries;
    for (const auto& [name, values] : metadata.tensors)
        entries.push_back({name, {static_cast<std::int64_t>(values.size())}, StoredType::f32});
    for (const GgufName& name : family.model_names)
        entries.push_back({gguf_name({std::nullopt, name.gguf, "weight"}), {5, 4}});
    for (const GgufName& name : family.layer_names) {
        const std::int64_t rows = name.gguf == "attn_k" ? 4 : 8;
        entries.push_back({gguf_name({0, name.gguf, "weight"}), {rows, 4}});
    }
    const std::filesystem::path path = dir / "made.gguf";
    GgufWriter writer(path, metadata.keys, entries);
    for (const auto& [name, values] : metadata.tensors)
        writer.write(name, values.data(), static_cast<std::int64_t>(values.size() * 4));
    const std::vector<float> zeros(64);
    for (std::size_t i = metadata.tensors.size(); i < entries.size(); ++i)
        writer.write(entries[i].name, zeros.data(), entries[i].bytes());
    writer.commit();
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ModelFiles, EveryFamilyOpensFromGgufAndMutatedOnesOpenOrAreRefused) {
    const TempDir dir;
    for (const GgufArchitecture& family : gguf_architectures()) {
        SCOPED_TRACE(family.model_type);
        const std::string content = small_model(family, dir);
        const ModelFiles files = ModelFiles::open(dir / "made.gguf");
        // Without a window in its keys Mistral is Llama; the window makes it Mistral.
        EXPECT_EQ(files.config().at("model_type").string(), family.model_type);
        EXPECT_EQ(files.tensors().size(), family.model_names.size() + family.layer_names.size());
        const fs::path path = dir / "m.gguf";
        const testing::MutationResult result = testing::try_mutations(content, path, 400, 7, [&] {
            const ModelFiles opened = ModelFiles::open(path);
            for (const StoredTensor& tensor : opened.tensors())
                values_of(tensor);
        });
        EXPECT_GT(result.opened + result.refused, 300);
    }
}

TEST(ModelFiles, WindowsAndRopeOfOtherFamilies) {
    const TempDir dir;
    const auto config_of = [&](std::string_view type) {
        small_model(*find_gguf_architecture_of(type), dir);
        return ModelFiles::open(dir / "made.gguf").config();
    };
    EXPECT_EQ(
        config_of("phi3").at("rope_scaling").dump(),
        R"({"rope_type": "longrope", "long_factor": [2.0, 4.0], "short_factor": [1.0, 1.5]})");
    EXPECT_EQ(config_of("phi3").at("original_max_position_embeddings").integer(), 16);
    EXPECT_EQ(
        config_of("exaone4").at("layer_types").dump(),
        R"(["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"])");
    EXPECT_EQ(config_of("smollm3").at("no_rope_layers").dump(), "[1, 1, 1, 0]");
    EXPECT_EQ(config_of("gemma3_text").at("sliding_window_pattern").integer(), 6);
    EXPECT_EQ(config_of("gemma2").at("query_pre_attn_scalar").integer(), 256);
    EXPECT_EQ(config_of("exaone").at("num_layers").integer(), 4);
    EXPECT_EQ(config_of("qwen2").find("attention_bias"), nullptr);
    EXPECT_EQ(config_of("granite").at("logits_scaling").number(), 1);
}

}  // namespace
}  // namespace garam
