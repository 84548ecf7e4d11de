#include "garam/io/lora_settings.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "garam/core/error.h"

namespace garam {
namespace {

const std::string kQ = "model.layers.1.self_attn.q_proj";
const std::string kQ11 = "model.layers.11.self_attn.q_proj";
const std::string kDown = "model.layers.0.mlp.down_proj";

TEST(LoraTargets, ListsNameEndsAndPatternsTheWhole) {
    const LoraTargets list({.target_modules = {"q_proj", "layers.0.mlp.down_proj"}});
    EXPECT_TRUE(list.contains(kQ));
    EXPECT_TRUE(list.contains(kDown));
    EXPECT_FALSE(list.contains("model.layers.1.mlp.down_proj"));
    EXPECT_FALSE(list.contains("model.layers.1.self_attn.sq_proj")) << "an end begins at a dot";

    const LoraTargets pattern({.target_modules = {R"(.*\.(q|down)_proj)"}});
    EXPECT_TRUE(pattern.contains(kQ));
    EXPECT_TRUE(pattern.contains(kDown));
    EXPECT_FALSE(pattern.contains(kQ + ".inner"));
    EXPECT_FALSE(LoraTargets({.target_modules = {"(q)_proj"}}).contains(kQ)) << "fullmatch";
    // Alternatives are tried until one fits as a whole.
    EXPECT_TRUE(LoraTargets({.target_modules = {".*self_attn|.*q_proj"}}).contains(kQ));
}

TEST(LoraTargets, ExclusionsAndLayers) {
    LoraSettings settings{.target_modules = {"q_proj", "down_proj"}};
    settings.exclude_modules = {"layers.1.self_attn.q_proj"};
    EXPECT_FALSE(LoraTargets(settings).contains(kQ));
    EXPECT_TRUE(LoraTargets(settings).contains(kQ11));
    settings.exclude_modules = {R"(.*\.self_attn\..*)"};
    EXPECT_FALSE(LoraTargets(settings).contains(kQ11));
    EXPECT_TRUE(LoraTargets(settings).contains(kDown));

    settings.exclude_modules = {};
    settings.layers_to_transform = {0, 11};
    EXPECT_FALSE(LoraTargets(settings).contains(kQ));
    EXPECT_TRUE(LoraTargets(settings).contains(kQ11));
    EXPECT_TRUE(LoraTargets(settings).contains(kDown));
    EXPECT_FALSE(LoraTargets(settings).contains("model.q_proj")) << "in no layer";
    settings.layers_pattern = {"layers"};
    EXPECT_TRUE(LoraTargets(settings).contains(kDown));
    settings.layers_pattern = {"h"};
    EXPECT_FALSE(LoraTargets(settings).contains(kDown));
    // The first number counts, and a full name counts whatever its layer.
    settings = {.target_modules = {"q_proj", kDown}, .layers_to_transform = {1}};
    EXPECT_TRUE(LoraTargets(settings).contains("model.layers.1.experts.0.q_proj"));
    EXPECT_FALSE(LoraTargets(settings).contains("model.layers.0.experts.1.q_proj"));
    EXPECT_TRUE(LoraTargets(settings).contains(kDown));
}

TEST(LoraTargets, ALongPathIsNoModules) {
    EXPECT_EQ(saved_by({"norm"}, kDown), "");
    EXPECT_EQ(saved_by({"head", "proj"}, kDown + ".inner"), "proj");
    std::string path;
    for (int i = 0; i < 1'000'000; ++i)
        path += ".1";
    LoraSettings settings{.target_modules = {"all-linear"}, .layers_to_transform = {1}};
    settings.layers_pattern = {"layers"};
    const LoraTargets targets(settings);
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_EQ(saved_by(std::vector<std::string>(20'000, "norm"), path), "");
    EXPECT_TRUE(targets.skips_layer_of(path));
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(30));
}

TEST(LoraTargets, TheFirstPatternThatFitsGivesRankAndAlpha) {
    LoraSettings settings{.r = 4, .lora_alpha = 8, .target_modules = {"all-linear"}};
    settings.rank_pattern = {{"1.self_attn.q_proj", 2}, {"q_proj", 16}, {"up|down_proj", 3}};
    settings.alpha_pattern = {{R"(layers\.\d+\.mlp\..*)", 5}};
    const LoraTargets targets(settings);
    EXPECT_EQ(targets.rank(kQ), 2);
    EXPECT_EQ(targets.rank(kQ11), 16) << "'1.' ends no module";
    EXPECT_EQ(targets.rank(kDown), 3);
    EXPECT_EQ(targets.rank("model.layers.0.mlp.gate_proj"), 4);
    EXPECT_EQ(targets.scaling(kQ), 4);
    EXPECT_EQ(targets.scaling(kDown), 5.0 / 3);
    settings.use_rslora = true;
    EXPECT_EQ(LoraTargets(settings).scaling(kDown), 5 / std::sqrt(3.0));
}

TEST(LoraTargets, WhatIsNoExpressionIsRefusedByName) {
    const auto refusal = [](const LoraSettings& settings) {
        try {
            const LoraTargets targets(settings);
            return std::to_string(targets.contains(std::string(60, 'a') + "!"));
        } catch (const Error& error) {
            return std::string(error.what());
        }
    };
    EXPECT_EQ(refusal({.target_modules = {"(q"}}).find("target_modules: \"(q\" is no regular"), 0u);
    EXPECT_EQ(refusal({.exclude_modules = {"["}}).find("exclude_modules: "), 0u);
    EXPECT_EQ(refusal({.rank_pattern = {{"(", 1}}}).find("rank_pattern: "), 0u);
    EXPECT_EQ(refusal({.target_modules = {std::string(5000, '*')}}).find("target_modules: "), 0u);
    // One that would take years gives up.
    EXPECT_NE(refusal({.target_modules = {"(a|aa)*[bc]"}}).find("gave up"), std::string::npos);
}

}  // namespace
}  // namespace garam
