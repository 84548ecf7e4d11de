// Gradients in bf16 against fp64 truth, with PEFT's own error in bf16 beside. Truth and PEFT's errors are
// those of fp64_reference/ (README.md there); inputs and adapters come from the reference data.
//
// Bounds: an error here is a sum of roundings of random sign, which garam and PEFT make at the same links
// of the same chain, so that their errors are draws of one distribution. PEFT's is known by the root mean
// square of 16 draws a tensor. Of these draws themselves none is over 2.04 times it, and over all tensors
// of a golden none is over 1.45 times it: garam's draw may be 2 and 1.5 times it. To the first comes what
// a tensor may have from roundings that PEFT lacks, or makes in fp32: one in a block, each of 0.41 u in the
// mean (u = 2^-8, the most that rounding to 8 bits of significand changes), of random sign.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "garam/io/peft_adapter.h"
#include "models/decoder_harness.h"
#include "testing/golden_batch.h"
#include "testing/test_data.h"

namespace garam {
namespace {

using testing::DecoderHarness;
using testing::GoldenFile;

constexpr double kTensor = 2;
constexpr double kAllTensors = 1.5;
constexpr double kRounding = 0.41 * 0x1p-8;

struct Golden {
    const char* name;
    bool family;   // a folder of golden/families; else one of golden/peft
    bool adapter;  // what is trained; else all weights
};

constexpr Golden kGoldens[] = {
    {"case1_lora_r8_all", false, true},
    {"case2_lora_r4_qv", false, true},
    {"case3_rslora_r8_all", false, true},
    {"case6_full_finetune", false, false},
    {"llama-bias-linearrope", true, false},
    {"llama-bias-linearrope", true, true},
    {"llama-llama3rope-tied", true, false},
    {"llama-llama3rope-tied", true, true},
    {"exaone4", true, false},
    {"exaone4", true, true},
    {"gemma2", true, false},
    {"gemma2", true, true},
    {"gemma3-text", true, false},
    {"gemma3-text", true, true},
    {"granite", true, false},
    {"granite", true, true},
    {"mistral-sw8", true, false},
    {"mistral-sw8", true, true},
    {"olmo2", true, false},
    {"olmo2", true, true},
    {"phi3-partial", true, false},
    {"phi3-partial", true, true},
    {"qwen2-tied", true, false},
    {"qwen2-tied", true, true},
    {"qwen3-tied", true, false},
    {"qwen3-tied", true, true},
    {"smollm3-nope", true, false},
    {"smollm3-nope", true, true},
};

using Case = std::tuple<Golden, DeviceProfile>;

std::string test_name(const ::testing::TestParamInfo<Case>& info) {
    const auto& [golden, profile] = info.param;
    std::string name = golden.name;
    std::replace(name.begin(), name.end(), '-', '_');
    if (golden.family) name += golden.adapter ? "_adapter" : "_all_weights";
    return profile.is_cuda() ? name + "_" + testing::card_name(profile) : name;
}

class Fp64Golden : public ::testing::TestWithParam<Case> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Fp64Golden);
INSTANTIATE_TEST_SUITE_P(Cpu, Fp64Golden,
                         ::testing::Combine(::testing::ValuesIn(kGoldens),
                                            ::testing::Values(detect_cpu_profile())),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Cuda, Fp64Golden,
                         ::testing::Combine(::testing::ValuesIn(kGoldens),
                                            ::testing::ValuesIn(testing::card_profiles())),
                         test_name);

PeftAdapter adapter_of(const GoldenFile& golden, const std::filesystem::path& folder, bool family) {
    if (!family) return read_peft_adapter(folder);
    PeftAdapter adapter;
    adapter.settings = {.r = 4, .lora_alpha = 8, .target_modules = {"all-linear"}};
    for (const auto& [name, tensor] : golden.tensors()) {
        if (name.starts_with("base_model.model."))
            adapter.tensors.push_back({name, tensor.shape, tensor.values});
    }
    return adapter;
}

TEST_P(Fp64Golden, Bf16IsAsNearAsPeft) {
    const auto& [which, profile] = GetParam();
    const std::string kind = which.family ? "families" : "peft";
    const auto folder = testing::data_dir() / "golden" / kind / which.name;
    GARAM_REQUIRE_DATA("golden/" + kind + "/" + which.name + "/golden.safetensors");
    const GoldenFile golden(folder / "golden.safetensors");
    const GoldenFile truth(testing::source_dir() / "tests" / "models" / "fp64_reference" /
                           (std::string(which.name) + ".safetensors"));
    const ModelFiles files =
        ModelFiles::open(which.family ? folder : testing::data_dir() / "golden" / "stories260K-hf");
    Decoder::Options options;
    options.compute = DType::bf16;
    options.trained = which.adapter ? Decoder::Trained::adapter : Decoder::Trained::all_weights;
    PeftAdapter adapter;
    if (which.adapter) {
        adapter = adapter_of(golden, folder, which.family);
        options.lora = adapter.settings;
    }
    DecoderHarness run(files, options, profile);
    if (which.adapter) run.model.load_adapter(adapter, which.name);

    const double targets = static_cast<double>(golden.at("num_valid_tokens").integers.at(0));
    const double loss = static_cast<double>(run.gradients({golden.batch()})) / targets;
    const std::string prefix = which.family && which.adapter ? "lora." : "";
    const auto number = [&](const std::string& name) {
        return static_cast<double>(truth.scalar(name));
    };
    // Logits of a few units are rounded by 2^-8 of themselves at most; in the mean most of that cancels.
    EXPECT_NEAR(loss, number(prefix + "loss"), 1e-2 * loss);

    const double floor = kRounding * std::sqrt(static_cast<double>(run.model.config().num_layers));
    double garam_square = 0, peft_square = 0, worst = 0, worst_of_peft = 0, worst_ratio = 0;
    std::string worst_tensor, ratio_tensor;
    std::size_t tensors = 0;
    for (const Parameter& parameter : run.model.parameters()) {
        // Where base weights are bf16 in the file, the reference data has the truth.
        const GoldenFile& exact = truth.has("grad." + parameter.name) ? truth : golden;
        ASSERT_TRUE(exact.has("grad." + parameter.name)) << parameter.name;
        std::vector<float> mean = run.values(parameter.gradient);
        for (float& value : mean)
            value = static_cast<float>(static_cast<double>(value) / targets);
        const double error =
            testing::relative_error(mean.data(), exact.at("grad." + parameter.name).values);
        const double peft = number("peft.rms_error." + parameter.name);
        EXPECT_LE(error, kTensor * peft + floor) << parameter.name;
        garam_square += error * error;
        peft_square += peft * peft;
        worst_of_peft = std::max(worst_of_peft, number("peft.error." + parameter.name));
        if (error > worst) {
            worst = error;
            worst_tensor = parameter.name;
        }
        if (error / peft > worst_ratio) {
            worst_ratio = error / peft;
            ratio_tensor = parameter.name;
        }
        ++tensors;
    }
    EXPECT_LE(std::sqrt(garam_square), kAllTensors * std::sqrt(peft_square));
    const double count = static_cast<double>(tensors);
    std::printf("    %zu gradients, error in bf16 against fp64:      garam     PEFT\n", tensors);
    std::printf("      root mean square                          %8.4f %8.4f\n",
                std::sqrt(garam_square / count), std::sqrt(peft_square / count));
    std::printf("      worst tensor of each                      %8.4f %8.4f\n", worst,
                worst_of_peft);
    std::printf("      %s\n", worst_tensor.c_str());
    std::printf("      largest multiple of PEFT's: %.2f, %s\n", worst_ratio, ratio_tensor.c_str());
    std::printf("      loss - truth                              %8.4f %8.4f\n",
                loss - number(prefix + "loss"),
                number(prefix + "peft.loss") - number(prefix + "loss"));
}

}  // namespace
}  // namespace garam
