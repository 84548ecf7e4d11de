// Adapters that others trained and published, over random weights of their bases' shapes: what they do not
// touch (vocabulary, MLP) is smaller here.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>

#include "garam/core/philox.h"
#include "garam/io/peft_adapter.h"
#include "garam/io/safetensors.h"
#include "garam/models/merge.h"
#include "models/decoder_harness.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam {
namespace {

using testing::data_dir;
using testing::DecoderHarness;
using testing::TempDir;

struct Published {
    const char* adapter;
    const char* config;
    std::int64_t layers, hidden, q, kv, head_dim;
    bool has_biases;       // of q, k and v
    bool has_extra_norms;  // of heads, and after attention and MLP
    std::size_t tensors;   // that the adapter has
};
constexpr std::int64_t kVocabulary = 50;
constexpr std::int64_t kIntermediate = 32;

const Published kQwen{"qwen2.5-0.5b-r8",
                      R"({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"],
    "vocab_size": 50, "hidden_size": 896, "intermediate_size": 32, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "hidden_act": "silu",
    "tie_word_embeddings": true, "torch_dtype": "float32"})",
                      24,
                      896,
                      896,
                      128,
                      64,
                      true,
                      false,
                      24 * 2 * 2};
const Published kGemma{"gemma3-270m-r4",
                       R"({"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"],
    "vocab_size": 50, "hidden_size": 640, "intermediate_size": 32, "num_hidden_layers": 18,
    "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0, "sliding_window": 8, "sliding_window_pattern": 6,
    "query_pre_attn_scalar": 256, "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": true, "torch_dtype": "float32"})",
                       18,
                       640,
                       1024,
                       256,
                       256,
                       false,
                       true,
                       18 * 4 * 2};

std::map<std::string, Shape> shapes_of(const Published& p) {
    std::map<std::string, Shape> shapes{{"model.embed_tokens.weight", {kVocabulary, p.hidden}},
                                        {"model.norm.weight", {p.hidden}}};
    for (std::int64_t l = 0; l < p.layers; ++l) {
        const std::string layer = "model.layers." + std::to_string(l) + ".";
        const std::string attention = layer + "self_attn.";
        shapes[attention + "q_proj.weight"] = {p.q, p.hidden};
        shapes[attention + "k_proj.weight"] = {p.kv, p.hidden};
        shapes[attention + "v_proj.weight"] = {p.kv, p.hidden};
        shapes[attention + "o_proj.weight"] = {p.hidden, p.q};
        shapes[layer + "mlp.gate_proj.weight"] = {kIntermediate, p.hidden};
        shapes[layer + "mlp.up_proj.weight"] = {kIntermediate, p.hidden};
        shapes[layer + "mlp.down_proj.weight"] = {p.hidden, kIntermediate};
        shapes[layer + "input_layernorm.weight"] = {p.hidden};
        shapes[layer + "post_attention_layernorm.weight"] = {p.hidden};
        if (p.has_biases) {
            shapes[attention + "q_proj.bias"] = {p.q};
            shapes[attention + "k_proj.bias"] = {p.kv};
            shapes[attention + "v_proj.bias"] = {p.kv};
        }
        if (p.has_extra_norms) {
            shapes[attention + "q_norm.weight"] = {p.head_dim};
            shapes[attention + "k_norm.weight"] = {p.head_dim};
            shapes[layer + "pre_feedforward_layernorm.weight"] = {p.hidden};
            shapes[layer + "post_feedforward_layernorm.weight"] = {p.hidden};
        }
    }
    return shapes;
}

void write_base(const std::filesystem::path& folder, const Published& p) {
    std::filesystem::create_directory(folder);
    std::ofstream(folder / "config.json") << p.config;
    const auto shapes = shapes_of(p);
    std::vector<std::vector<float>> values;
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const auto& [name, shape] : shapes) {
        Random random(7, values.size());
        const bool is_norm = name.find("norm") != std::string::npos;
        const double spread =
            shape.rank() == 2 ? 1 / std::sqrt(static_cast<double>(shape[1])) : 0.1;
        std::vector<float> data(static_cast<std::size_t>(shape.elements()));
        for (float& value : data)
            value = static_cast<float>((is_norm ? 1 : 0) + spread * random.normal());
        values.push_back(std::move(data));
        tensors.emplace_back(name,
                             Tensor(values.back().data(), DType::f32, shape, DeviceKind::cpu));
    }
    write_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
    double worst = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        worst = std::max(worst, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    return worst;
}

class PublishedAdapters : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedAdapters, GiveWhatTheirMergedModelGives) {
    GARAM_REQUIRE_DATA("adapters");
    const TempDir dir;
    write_base(dir / "base", GetParam());
    const ModelFiles base = ModelFiles::open(dir / "base");
    const PeftAdapter adapter = read_peft_adapter(data_dir() / "adapters" / GetParam().adapter);
    EXPECT_EQ(adapter.tensors.size(), GetParam().tensors);

    std::filesystem::create_directory(dir / "merged");
    write_merged_model(base, adapter, GetParam().adapter, dir / "merged", {});

    TokenBatch batch;
    for (const int length : {11, 1, 6}) {
        std::vector<std::int32_t> ids;
        for (int i = 0; i < length; ++i)
            ids.push_back((7 * i + length) % static_cast<int>(kVocabulary));
        batch.append(ids, ids, length);
    }
    DecoderHarness plain(base, {});
    Decoder::Options options;
    options.lora = adapter.settings;
    DecoderHarness adapted(base, options);
    adapted.model.load_adapter(adapter, GetParam().adapter);
    const ModelFiles merged_files = ModelFiles::open(dir / "merged");
    DecoderHarness merged(merged_files, {});
    const std::vector<float> logits = adapted.logits(batch);
    const double change = distance(logits, plain.logits(batch));
    EXPECT_GT(change, 0.01);
    // Both sum in fp32, in another order: ten times what SDPA and eager differ by in the goldens.
    EXPECT_LT(distance(logits, merged.logits(batch)), 3e-4);
}

INSTANTIATE_TEST_SUITE_P(Models, PublishedAdapters, ::testing::Values(kQwen, kGemma),
                         [](const auto& of) {
                             return std::string(of.index == 0 ? "qwen2_5" : "gemma3");
                         });

}  // namespace
}  // namespace garam
