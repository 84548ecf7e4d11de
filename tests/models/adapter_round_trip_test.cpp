// Each kind of adapter from the model to its folder and back, and merged into the base.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "garam/models/merge.h"
#include "models/moved_adapter.h"
#include "testing/temp_dir.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

using testing::DecoderHarness;
using testing::moved_adapter;
using testing::TempDir;
using testing::write_adapter;

TokenBatch batch() {
    TokenBatch tokens;
    const std::vector<std::int32_t> ids{3, 5, 7, 2, 9, 4, 200, 17};
    tokens.append(ids, ids, 0);
    return tokens;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want[i], 2e-5f * (1 + std::abs(want[i]))) << i;
}

void check(const LoraSettings& lora, bool has_biases) {
    const TempDir dir;
    testing::TinyModel tiny;
    tiny.biases = true;
    testing::write_tiny_model(dir / "base", tiny);
    const ModelFiles files = ModelFiles::open(dir / "base");
    Decoder::Options options;
    options.trained = Decoder::Trained::adapter;
    options.lora = lora;
    DecoderHarness run(files, options);
    const PeftAdapter adapter = moved_adapter(run);
    const auto biases = std::count_if(adapter.tensors.begin(), adapter.tensors.end(),
                                      [](const auto& t) { return t.name.ends_with(".bias"); });
    EXPECT_EQ(biases > 0, has_biases);
    const std::vector<float> want = run.logits(batch());

    std::filesystem::create_directory(dir / "adapter");
    write_adapter(adapter, dir / "adapter");
    const PeftAdapter read = read_peft_adapter(dir / "adapter");
    Decoder::Options applied;
    applied.lora = read.settings;
    DecoderHarness again(files, applied);
    again.model.load_adapter(read, "read");
    EXPECT_EQ(again.logits(batch()), want);

    std::filesystem::create_directory(dir / "merged");
    write_merged_model(files, read, "read", dir / "merged", {});
    const ModelFiles merged_files = ModelFiles::open(dir / "merged");
    DecoderHarness merged(merged_files, {});
    expect_near(merged.logits(batch()), want);
}

TEST(AdapterRoundTrip, Patterns) {
    LoraSettings lora{.r = 4, .target_modules = {R"(.*\.(q|k|gate|down)_proj)"}};
    lora.exclude_modules = {"0.self_attn.q_proj"};
    lora.rank_pattern = {{"k_proj", 2}, {"layers.1.mlp.down_proj", 3}};
    lora.alpha_pattern = {{R"(layers\.1\.mlp\..*)", 2.5}};
    check(lora, false);
    lora.target_modules = {"all-linear"};
    lora.layers_to_transform = {1};
    lora.use_rslora = true;
    check(lora, false);
}

TEST(AdapterRoundTrip, Biases) {
    check({.r = 2, .target_modules = {"q_proj", "up_proj"}, .bias = "all"}, true);
    check({.r = 2, .target_modules = {"q_proj", "up_proj"}, .bias = "lora_only"}, true);
    check({.r = 2, .target_modules = {"q_proj", "up_proj"}, .bias = "none"}, false);
}

TEST(AdapterRoundTrip, Dora) {
    LoraSettings lora{.r = 4, .lora_alpha = 6, .use_dora = true, .target_modules = {"all-linear"}};
    check(lora, false);
    lora.target_modules = {"q_proj", "down_proj"};
    lora.rank_pattern = {{"q_proj", 2}};
    lora.use_rslora = true;
    lora.bias = "all";
    check(lora, true);
}

// Weights add up over adapters of different kinds: one of weight 0 changes nothing, two halves are one.
TEST(AdapterRoundTrip, SeveralAreMergedByWeight) {
    const TempDir dir;
    testing::TinyModel tiny;
    tiny.biases = true;
    testing::write_tiny_model(dir / "base", tiny);
    const ModelFiles files = ModelFiles::open(dir / "base");
    Decoder::Options options;
    options.trained = Decoder::Trained::adapter;
    options.lora = LoraSettings{.r = 2, .target_modules = {"q_proj", "down_proj"}, .bias = "all"};
    DecoderHarness run(files, options);
    const PeftAdapter a = moved_adapter(run);
    const std::vector<float> want = run.logits(batch());
    options.lora = LoraSettings{
        .r = 4, .lora_alpha = 2, .use_dora = true, .target_modules = {"down_proj", "v_proj"}};
    DecoderHarness other(files, options);
    const PeftAdapter b = moved_adapter(other);
    const auto merged = [&](const char* name, const std::vector<WeightedAdapter>& adapters) {
        std::filesystem::create_directory(dir / name);
        write_merged_model(files, adapters, dir / name, {});
        const ModelFiles merged_files = ModelFiles::open(dir / name);
        DecoderHarness result(merged_files, {});
        return result.logits(batch());
    };
    expect_near(merged("halves", {{&a, "a", 0.5}, {&b, "b", 0}, {&a, "a", 0.5}}), want);
    expect_near(merged("undone", {{&b, "b", 1}, {&a, "a", 1}, {&b, "b", -1}}), want);
    const std::vector<float> both = merged("both", {{&a, "a", 1}, {&b, "b", 1}});
    EXPECT_NE(both, want);
}

class AdapterBiases : public ::testing::TestWithParam<DeviceProfile> {};
GARAM_FOR_CPU_AND_CARDS(AdapterBiases);

// A new adapter changes nothing: the biases' gradients are those of full fine-tuning.
TEST_P(AdapterBiases, GradientsAreThoseOfTheBase) {
    const TempDir dir;
    testing::TinyModel tiny;
    tiny.biases = true;
    testing::write_tiny_model(dir / "base", tiny);
    const ModelFiles files = ModelFiles::open(dir / "base");
    Decoder::Options options;
    options.trained = Decoder::Trained::all_weights;
    DecoderHarness full(files, options, GetParam());
    full.gradients({batch()});
    options.trained = Decoder::Trained::adapter;
    std::size_t counts[2] = {};
    for (const std::string bias : {"all", "lora_only"}) {
        options.lora = LoraSettings{.r = 2, .target_modules = {"k_proj", "o_proj"}, .bias = bias};
        DecoderHarness run(files, options, GetParam());
        run.gradients({batch()});
        for (const Parameter& parameter : run.model.parameters()) {
            if (!parameter.name.ends_with(".bias")) continue;
            ++counts[bias == "all" ? 0 : 1];
            EXPECT_FALSE(parameter.weight_decay);
            std::string name = parameter.name.substr(std::string("base_model.model.").size());
            const std::size_t inner = name.find(".base_layer");
            const bool adapted = name.find("k_proj") != std::string::npos ||
                                 name.find("o_proj") != std::string::npos;
            EXPECT_EQ(inner != std::string::npos, adapted) << name;
            if (inner != std::string::npos) name.erase(inner, std::string(".base_layer").size());
            for (const Parameter& own : full.model.parameters())
                if (own.name == name)
                    expect_near(run.values(parameter.gradient), full.values(own.gradient));
        }
    }
    EXPECT_EQ(counts[0], 14u);
    EXPECT_EQ(counts[1], 4u);
}

}  // namespace
}  // namespace garam
