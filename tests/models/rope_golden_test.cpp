// RoPE whose frequencies come of lengths, against Transformers: rope_goldens/README.md. Tolerances as in
// decoder_golden_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "garam/models/rope.h"
#include "models/decoder_harness.h"
#include "testing/golden_batch.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam {
namespace {

using testing::DecoderHarness;
using testing::GoldenFile;

constexpr double kLogits = 3e-4;
constexpr double kLoss = 5e-6;
constexpr double kGradient = 1e-4;
constexpr std::int64_t kLongest = 24;

struct Golden {
    const char* name;
    const char* weights;
};
constexpr Golden kGoldens[] = {{"dynamic", "llama-bias-linearrope"},
                               {"yarn", "llama-llama3rope-tied"},
                               {"yarn-mscale", "qwen2-tied"},
                               {"longrope", "phi3-partial"}};

using Case = std::tuple<Golden, DeviceProfile>;
std::string test_name(const ::testing::TestParamInfo<Case>& info) {
    const auto& [golden, profile] = info.param;
    std::string name = golden.name;
    std::replace(name.begin(), name.end(), '-', '_');
    return profile.is_cuda() ? name + "_" + testing::card_name(profile) : name;
}

class RopeGolden : public ::testing::TestWithParam<Case> {
  protected:
    void SetUp() override {
        const auto& [golden, profile] = GetParam();
        const auto families = testing::data_dir() / "golden" / "families";
        GARAM_REQUIRE_DATA("golden/families");
        const auto folder =
            testing::source_dir() / "tests" / "models" / "rope_goldens" / golden.name;
        std::filesystem::copy_file(folder / "config.json", dir_ / "config.json");
        std::filesystem::create_symlink(
            std::filesystem::absolute(families / golden.weights / "model.safetensors"),
            dir_ / "model.safetensors");
        golden_ = std::make_unique<GoldenFile>(folder / "golden.safetensors");
        files_ = std::make_unique<ModelFiles>(ModelFiles::open(dir_.path()));
    }
    DecoderHarness make(const Decoder::Options& options) const {
        return DecoderHarness(*files_, options, std::get<1>(GetParam()));
    }

    testing::TempDir dir_;
    std::unique_ptr<GoldenFile> golden_;
    std::unique_ptr<ModelFiles> files_;
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RopeGolden);
INSTANTIATE_TEST_SUITE_P(Cpu, RopeGolden,
                         ::testing::Combine(::testing::ValuesIn(kGoldens),
                                            ::testing::Values(detect_cpu_profile())),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Cuda, RopeGolden,
                         ::testing::Combine(::testing::ValuesIn(kGoldens),
                                            ::testing::ValuesIn(testing::card_profiles())),
                         test_name);

TEST_P(RopeGolden, Frequencies) {
    const DecoderConfig config = DecoderConfig::from_json(files_->config(), "config.json");
    EXPECT_NEAR(config.rope.attention_scaling,
                static_cast<double>(golden_->scalar("rope.attention_scaling")), 1e-6);
    for (const std::int64_t length : {std::int64_t{9}, std::int64_t{16}, kLongest}) {
        const auto& want = golden_->at("rope.inv_freq." + std::to_string(length)).values;
        const std::vector<float> got =
            rope_inverse_frequencies(config.rope, config.rotary_dim, length);
        ASSERT_EQ(got.size(), want.size());
        // A few roundings: of the power, the divisor and yarn's ramp.
        for (std::size_t i = 0; i < got.size(); ++i)
            EXPECT_NEAR(got[i], want[i], 1e-6f * want[i]) << length << " " << i;
    }
}

TEST_P(RopeGolden, LogitsLossAndGradients) {
    Decoder::Options options;
    options.trained = Decoder::Trained::all_weights;
    options.max_positions = kLongest;
    DecoderHarness run = make(options);
    const TokenBatch batch = golden_->batch();
    const std::vector<float> got = run.logits(batch);
    const auto& want = golden_->at("logits");
    const auto vocab = static_cast<std::size_t>(want.shape.back());
    double worst = 0;
    std::size_t next = 0;
    for (const std::int64_t place : golden_->places()) {
        for (std::size_t v = 0; v < vocab; ++v, ++next) {
            const float wanted = want.values[static_cast<std::size_t>(place) * vocab + v];
            worst = std::max(worst, static_cast<double>(std::fabs(got[next] - wanted)));
        }
    }
    EXPECT_LE(worst, kLogits);

    const auto targets = static_cast<double>(golden_->at("num_valid_tokens").integers.at(0));
    const double loss = static_cast<double>(run.gradients({batch})) / targets;
    EXPECT_NEAR(loss, static_cast<double>(golden_->scalar("loss")), kLoss * loss);
    int checked = 0;
    for (const Parameter& parameter : run.model.parameters()) {
        if (!golden_->has("grad." + parameter.name)) continue;
        std::vector<float> mean = run.values(parameter.gradient);
        for (float& value : mean)
            value = static_cast<float>(static_cast<double>(value) / targets);
        EXPECT_LE(
            testing::relative_error(mean.data(), golden_->at("grad." + parameter.name).values),
            kGradient)
            << parameter.name;
        ++checked;
    }
    EXPECT_GT(checked, 4);
}

// Token by token as in one pass: short sequences with the cache of one, and long ones.
TEST_P(RopeGolden, DecodingIsTheForward) {
    Decoder::Options options;
    options.max_positions = kLongest;
    DecoderHarness run = make(options);
    const TokenBatch batch = golden_->batch();
    const auto vocab = static_cast<std::size_t>(run.model.config().vocab_size);
    const std::vector<float> whole = run.logits(batch);
    std::size_t begin = 0;
    for (std::size_t s = 0; s + 1 < batch.cu_seqlens.size(); ++s) {
        const auto length = static_cast<std::size_t>(batch.cu_seqlens[s + 1]) - begin;
        KvCache cache = run.model.make_cache(static_cast<std::int64_t>(length));
        std::vector<float> logits;
        run.model.decode(run.stream, cache, {batch.ids.data() + begin, 5}, logits);
        for (std::size_t t = 5; t < length; ++t)
            run.model.decode(run.stream, cache, {batch.ids.data() + begin + t, 1}, logits);
        const std::vector<float> want(
            whole.begin() + static_cast<std::ptrdiff_t>((begin + length - 1) * vocab),
            whole.begin() + static_cast<std::ptrdiff_t>((begin + length) * vocab));
        EXPECT_LE(testing::relative_error(logits.data(), want), 1e-5) << "sample " << s;
        begin += length;
    }
}

}  // namespace
}  // namespace garam
