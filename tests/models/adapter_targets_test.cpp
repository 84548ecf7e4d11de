#include "garam/models/adapter_targets.h"

#include <gtest/gtest.h>

#include "garam/core/error.h"
#include "garam/core/philox.h"
#include "garam/io/model_files.h"
#include "models/decoder_harness.h"
#include "testing/temp_dir.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

using testing::DecoderHarness;

const DecoderFamily& family(std::string_view name) {
    for (const DecoderFamily& one : decoder_families())
        if (one.name.starts_with(name)) return one;
    throw Error(std::string(name));
}

std::vector<std::string> linears(const TensorNames& names) {
    std::vector<std::string> paths;
    for (const char* layer : {".0.", ".1."})
        for (const std::string_view part : {names.q_proj, names.k_proj, names.down_proj})
            paths.push_back(std::string(names.layers) + layer + std::string(part));
    return paths;
}

TEST(AdapterTargets, PatternsAndExclusionsAreKeptForTheFile) {
    const TensorNames names;
    LoraSettings lora{.target_modules = {R"(.*\.[qk]_proj)"},
                      .exclude_modules = {"1.self_attn.k_proj"}};
    const auto adapters = resolve_adapters(lora, decoder_families().front(), linears(names));
    EXPECT_EQ(adapters.size(), 3u);
    EXPECT_FALSE(adapters.contains("model.layers.1.self_attn.k_proj"));
    EXPECT_EQ(lora.target_modules, std::vector<std::string>{R"(.*\.[qk]_proj)"});
    EXPECT_EQ(lora.exclude_modules, std::vector<std::string>{"1.self_attn.k_proj"});

    lora = {.target_modules = {"all-linear"}, .layers_to_transform = {1}};
    EXPECT_EQ(resolve_adapters(lora, decoder_families().front(), linears(names)).size(), 3u);
    EXPECT_EQ(lora.target_modules, (std::vector<std::string>{"down_proj", "k_proj", "q_proj"}));
    EXPECT_EQ(lora.layers_to_transform, std::vector<std::int64_t>{1});

    lora = {.target_modules = {"q_proj"}, .layers_to_transform = {7}};
    EXPECT_THROW(resolve_adapters(lora, decoder_families().front(), linears(names)), Error);
}

// EXAONE's files have names of their own; settings by Transformers' names come to the own ones.
TEST(AdapterTargets, OtherNamesBecomeTheFamilysOwn) {
    const DecoderFamily& exaone = family("EXAONE-3.5");
    LoraSettings lora{.r = 4, .target_modules = {R"(model\.layers\.1\..*(q|down)_proj)"}};
    lora.rank_pattern = {{"mlp.down_proj", 2}};
    const auto adapters = resolve_adapters(lora, exaone, linears(exaone.tensors));
    const std::string q = "transformer.h.1." + std::string(exaone.tensors.q_proj);
    const std::string down = "transformer.h.1." + std::string(exaone.tensors.down_proj);
    ASSERT_EQ(adapters.size(), 2u);
    EXPECT_EQ(adapters.at(q).rank, 4);
    EXPECT_EQ(adapters.at(down).rank, 2);
    EXPECT_EQ(lora.target_modules, (std::vector<std::string>{q, down}));
    EXPECT_EQ(lora.rank_pattern, (std::vector<std::pair<std::string, double>>{{down, 2}}));
    LoraSettings again = lora;
    EXPECT_EQ(resolve_adapters(again, exaone, linears(exaone.tensors)).at(down).rank, 2);
}

class AdapterPatterns : public ::testing::TestWithParam<DeviceProfile> {};
GARAM_FOR_CPU_AND_CARDS(AdapterPatterns);

// A module of a smaller rank is one of the larger with zeros behind, its scale kept by lora_alpha.
TEST_P(AdapterPatterns, SmallerRanksAreLargerOnesWithZeros) {
    const testing::TempDir dir;
    testing::write_tiny_model(dir.path());
    const ModelFiles files = ModelFiles::open(dir.path());
    Decoder::Options options;
    options.trained = Decoder::Trained::adapter;
    options.lora = LoraSettings{.r = 4, .lora_alpha = 8, .target_modules = {"all-linear"}};
    DecoderHarness plain(files, options, GetParam());
    options.lora->rank_pattern = {{"q_proj", 2}, {"down_proj", 1}};
    options.lora->alpha_pattern = {{"q_proj", 4}, {"down_proj", 2}};
    DecoderHarness patterned(files, options, GetParam());

    PeftAdapter narrow{*patterned.model.lora(), {}};
    PeftAdapter wide{*plain.model.lora(), {}};
    Random random(7);
    for (std::size_t p = 0; p < plain.model.parameters().size(); ++p) {
        const Parameter& small = patterned.model.parameters()[p];
        const Parameter& large = plain.model.parameters()[p];
        ASSERT_EQ(small.name, large.name);
        const bool down = small.name.find("down_proj") != std::string::npos;
        const bool q = small.name.find("q_proj") != std::string::npos;
        const std::int64_t rank = down ? 1 : q ? 2 : 4;
        const Shape& few = small.master.shape();
        const Shape& many = large.master.shape();
        const bool is_a = small.name.ends_with("lora_A.weight");
        ASSERT_EQ(few[is_a ? 0 : 1], rank) << small.name;
        AdapterTensor a{small.name, few,
                        std::vector<float>(static_cast<std::size_t>(few.elements()))};
        AdapterTensor b{small.name, many,
                        std::vector<float>(static_cast<std::size_t>(many.elements()))};
        for (std::int64_t i = 0; i < few[0]; ++i)
            for (std::int64_t j = 0; j < few[1]; ++j) {
                const auto value = static_cast<float>(random.uniform(-0.5, 0.5));
                a.values[static_cast<std::size_t>(i * few[1] + j)] = value;
                b.values[static_cast<std::size_t>(i * many[1] + j)] = value;
            }
        narrow.tensors.push_back(std::move(a));
        wide.tensors.push_back(std::move(b));
    }
    patterned.model.load_adapter(narrow, "narrow");
    plain.model.load_adapter(wide, "wide");

    TokenBatch batch;
    const std::vector<std::int32_t> ids{3, 5, 7, 2, 9, 4};
    batch.append(ids, ids, 0);
    const std::vector<float> want = plain.logits(batch);
    const std::vector<float> got = patterned.logits(batch);
    for (std::size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(got[i], want[i], 1e-5f * (1 + std::abs(want[i])));
    EXPECT_NEAR(patterned.gradients({batch}), plain.gradients({batch}), 1e-5);
    for (std::size_t p = 0; p < plain.model.parameters().size(); ++p) {
        const Parameter& small = patterned.model.parameters()[p];
        const std::vector<float> few = patterned.values(small.gradient);
        const std::vector<float> many = plain.values(plain.model.parameters()[p].gradient);
        const std::int64_t columns = small.master.shape()[1];
        const std::int64_t pitch = plain.model.parameters()[p].master.shape()[1];
        for (std::size_t e = 0; e < few.size(); ++e) {
            const auto at = static_cast<std::int64_t>(e);
            const float wanted =
                many[static_cast<std::size_t>(at / columns * pitch + at % columns)];
            ASSERT_NEAR(few[e], wanted, 1e-4f * (1 + std::abs(wanted))) << small.name;
        }
    }
}

}  // namespace
}  // namespace garam
