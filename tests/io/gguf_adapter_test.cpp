// LoRA GGUF files that lie, one clear error each; what is right about them is checked with golden files
// in tests/models/gguf_export_test.cpp.
#include "garam/io/gguf_adapter.h"

#include <gtest/gtest.h>

#include <cmath>

#include "garam/core/error.h"
#include "garam/io/safetensors.h"
#include "io/gguf_builder.h"
#include "io/mutation.h"
#include "testing/temp_dir.h"

namespace garam {
namespace {

namespace fs = std::filesystem;
using testing::GgufBuilder;
using testing::TempDir;

// A Llama of 2 heads of 4 (1 for k and v): its config alone counts.
ModelFiles base_in(const TempDir& dir) {
    dir.write("base/config.json", R"({"model_type": "llama", "hidden_size": 8,
        "intermediate_size": 6, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "vocab_size": 5, "max_position_embeddings": 16})");
    float value = 1;
    write_safetensors(dir / "base/model.safetensors",
                      {{"model.norm.weight", Tensor(&value, DType::f32, {1}, DeviceKind::cpu)}});
    return ModelFiles::open(dir / "base");
}

GgufBuilder keys(const char* type = "adapter", const char* kind = "lora",
                 const char* family = "llama") {
    GgufBuilder builder;
    builder.key_text("general.type", type).key_text("general.architecture", family);
    builder.key_text("adapter.type", kind).key_f32("adapter.lora.alpha", 4);
    return builder;
}

std::vector<float> counting(std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
        values[i] = static_cast<float>(i);
    return values;
}

GgufBuilder pair(GgufBuilder builder = keys()) {
    builder.tensor_f32("blk.0.attn_q.weight.lora_a", {8, 1}, counting(8));
    builder.tensor_f32("blk.0.attn_q.weight.lora_b", {1, 8}, counting(8));
    return builder;
}

TEST(GgufAdapter, RowsOfQComeBackInOrder) {
    const TempDir dir;
    const PeftAdapter adapter = read_adapter(dir.write("a.gguf", pair().build()), base_in(dir));
    EXPECT_EQ(adapter.settings.r, 1);
    EXPECT_EQ(adapter.settings.scaling(), 4);
    EXPECT_EQ(adapter.settings.target_modules,
              (std::vector<std::string>{"model.layers.0.self_attn.q_proj"}));
    ASSERT_EQ(adapter.tensors.size(), 2u);
    EXPECT_EQ(adapter.tensors[1].name,
              "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight");
    EXPECT_EQ(adapter.tensors[0].values, counting(8));
    EXPECT_EQ(adapter.tensors[1].values, (std::vector<float>{0, 2, 1, 3, 4, 6, 5, 7}));
}

TEST(GgufAdapter, RanksAndScalesOfModulesComeBack) {
    const TempDir dir;
    const ModelFiles base = base_in(dir);
    const std::string v = "model.layers.0.self_attn.v_proj";
    const std::string down = "model.layers.0.mlp.down_proj";
    const std::string up = "model.layers.0.mlp.up_proj";
    PeftAdapter adapter;
    adapter.settings.r = 1;
    adapter.settings.lora_alpha = 3;
    adapter.settings.rank_pattern = {{"v_proj", 2}};
    adapter.settings.alpha_pattern = {{"down_proj", 12}};
    const auto add = [&](const std::string& module, std::int64_t in, std::int64_t out,
                         std::int64_t r) {
        for (const bool is_a : {true, false}) {
            const Shape shape = is_a ? Shape{r, in} : Shape{out, r};
            adapter.tensors.push_back(
                {"base_model.model." + module + (is_a ? ".lora_A.weight" : ".lora_B.weight"), shape,
                 counting(static_cast<std::size_t>(shape.elements()))});
        }
    };
    add(v, 8, 4, 2);
    add(down, 6, 8, 1);
    add(up, 8, 6, 1);
    write_gguf_adapter(dir / "a.gguf", adapter, "source", base);
    const PeftAdapter read = read_gguf_adapter(dir / "a.gguf", base);
    EXPECT_EQ(read.settings.r, 1);
    const LoraTargets targets(read.settings);
    EXPECT_EQ(targets.rank(v), 2);
    EXPECT_EQ(targets.scaling(v), 1.5);
    EXPECT_EQ(targets.rank(down), 1);
    EXPECT_EQ(targets.scaling(down), 3);  // four times that stands in B
    ASSERT_EQ(read.tensors.size(), 6u);
    for (std::size_t i = 0; i < 6; ++i) {
        std::vector<float> values = adapter.tensors[i].values;
        if (i == 3)
            for (float& value : values)
                value *= 4;
        EXPECT_EQ(read.tensors[i].name, adapter.tensors[i].name);
        EXPECT_EQ(read.tensors[i].values, values) << read.tensors[i].name;
    }

    adapter.tensors.push_back({"base_model.model." + v + ".base_layer.bias", {4}, counting(4)});
    try {
        write_gguf_adapter(dir / "b.gguf", adapter, "source", base);
        ADD_FAILURE() << "a bias was written";
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("is a trained bias"), std::string::npos);
    }
}

TEST(GgufAdapter, LiesAreNamed) {
    const TempDir dir;
    const ModelFiles base = base_in(dir);
    const auto expect = [&](const GgufBuilder& builder, const std::string& part) {
        const fs::path path = dir.write("bad.gguf", builder.build());
        try {
            read_gguf_adapter(path, base);
            ADD_FAILURE() << "read, but should say " << part;
        } catch (const Error& error) {
            const std::string message = error.what();
            EXPECT_EQ(message.find(path.string()), 0u) << message;
            EXPECT_NE(message.find(part), std::string::npos) << message;
        }
    };
    expect(keys("model"), "holds a GGUF model, not an adapter");
    expect(keys("adapter", "loha"), "adapter type loha is not supported");
    expect(pair(keys("adapter", "lora", "qwen2")), "is an adapter of a qwen2 model");
    expect(keys(), "holds no LoRA tensors");
    GgufBuilder no_alpha;
    no_alpha.key_text("general.type", "adapter").key_text("general.architecture", "llama");
    no_alpha.key_text("adapter.type", "lora");
    expect(pair(no_alpha), "adapter.lora.alpha is missing");
    expect(keys().key_text("adapter.lora.alpha2", "x").tensor_f32("a", {1}, {1}),
           "tensor a is no LoRA tensor");
    expect(keys().tensor_f32("blk.0.attn_q.weight.lora_a", {8, 1}, counting(8)),
           "tensor blk.0.attn_q.weight.lora_b is missing");
    expect(keys().tensor_f32("blk.0.attn_q.weight.lora_b", {1, 8}, counting(8)),
           "tensor blk.0.attn_q.weight.lora_a is missing");
    expect(keys().tensor_f32("blk.0.attn_x.weight.lora_a", {8, 1}, counting(8)),
           "tensor blk.0.attn_x.weight.lora_a is no LoRA tensor");
    expect(keys().tensor_f32("blk.0.attn_q.bias.lora_a", {8, 1}, counting(8)), "no LoRA tensor");
    expect(keys().tensor_f32(".lora_a", {8, 1}, counting(8)), "no LoRA tensor");
    expect(keys().tensor_f32("blk.0.attn_q.weight.lora_a", {8}, counting(8)),
           "which is no matrix of a pair");
    expect(keys().tensor_f32("blk.0.attn_q.weight.lora_a", {8, 0}, {}),
           "which is no matrix of a pair");
    expect(pair().tensor_f32("blk.0.attn_v.weight.lora_a", {8, 2}, counting(16)),
           "tensor blk.0.attn_v.weight.lora_b is missing");
    expect(keys()
               .tensor_f32("blk.0.attn_q.weight.lora_a", {8, 2}, counting(16))
               .tensor_f32("blk.0.attn_q.weight.lora_b", {1, 8}, counting(8)),
           "tensor blk.0.attn_q.weight.lora_b has rank 1, the other of its pair 2");
    expect(keys().tensor_f32("blk.0.attn_q.weight.lora_b", {1, 6}, counting(6)),
           "6 rows, which 2 heads");
    expect(keys().tensor_f32("blk.0.attn_q.weight.lora_b", {1, 0}, {}), "0 rows");
    std::vector<float> infinite = counting(8);
    infinite[3] = INFINITY;
    expect(keys().tensor_f32("blk.0.attn_v.weight.lora_a", {8, 1}, infinite), "NaN or infinite");
    EXPECT_THROW(read_adapter(dir / "absent.gguf", base), Error);
    EXPECT_THROW(read_adapter(dir / "absent", base), Error);
}

TEST(GgufAdapter, WhatDoesNotFitTheBaseIsNamed) {
    const TempDir dir;
    const ModelFiles base = base_in(dir);
    const auto expect = [&](const std::string& name, const Shape& shape, const std::string& part) {
        PeftAdapter adapter;
        adapter.settings.r = 1;
        adapter.tensors = {{name, shape, counting(static_cast<std::size_t>(shape.elements()))}};
        try {
            write_gguf_adapter(dir / "a.gguf", adapter, "source", base);
            ADD_FAILURE() << "written, but should say " << part;
        } catch (const Error& error) {
            const std::string message = error.what();
            EXPECT_EQ(message.find("source: "), 0u) << message;
            EXPECT_NE(message.find(part), std::string::npos) << message;
        }
        EXPECT_FALSE(fs::exists(dir / "a.gguf"));
    };
    expect("base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector", {8},
           "is no LoRA tensor");
    expect("base_model.model.score.lora_A.weight", {1, 8}, "belongs to no module that GGUF names");
    expect("base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight", {6, 1},
           "6 rows, which 2 heads of the base do not divide");
    PeftAdapter adapter;
    adapter.settings.r = 1;
    adapter.tensors = {{"base_model.model.lm_head.lora_A.weight", {1, 2}, {1, 1e6f}}};
    EXPECT_THROW(write_gguf_adapter(dir / "a.gguf", adapter, "source", base, StoredType::f16),
                 Error);
    EXPECT_FALSE(fs::exists(dir / "a.gguf"));
}

TEST(GgufAdapter, MutatedFilesAreReadOrRefused) {
    const TempDir dir;
    const ModelFiles base = base_in(dir);
    const fs::path path = dir / "a.gguf";
    const testing::MutationResult result = testing::try_mutations(
        pair().build(), path, 2000, 5, [&] { read_gguf_adapter(path, base); });
    EXPECT_GT(result.opened, 50);
    EXPECT_GT(result.refused, 500);
}

}  // namespace
}  // namespace garam
