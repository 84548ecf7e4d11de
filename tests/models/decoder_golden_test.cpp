// Logits, losses and every gradient against Transformers and PEFT. Cases are the folders of the
// reference data; one of a kind that garam does not support is skipped by name.
//
// Tolerances: the reference done twice, with another attention algorithm, differs by up to 3e-5 in
// logits, 5e-7 in loss and 1e-5 of a gradient tensor's norm (1.7e-5, 1.1e-6, 3.9e-6 for the families).
// Ten times that is allowed for another order of summation.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "garam/core/error.h"
#include "garam/io/peft_adapter.h"
#include "models/decoder_harness.h"
#include "testing/golden_batch.h"
#include "testing/test_data.h"

namespace garam {
namespace {

using testing::DecoderHarness;
using testing::GoldenFile;

constexpr double kLogits = 3e-4;
constexpr double kLoss = 5e-6;
constexpr double kGradient = 1e-4;

void expect_logits(DecoderHarness& run, const GoldenFile& golden, const std::string& name) {
    const std::vector<float> got = run.logits(golden.batch());
    const auto& want = golden.at(name);
    const std::int64_t vocab = want.shape.back();
    double worst = 0;
    std::size_t row = 0;
    for (const std::int64_t place : golden.places()) {
        for (std::int64_t v = 0; v < vocab; ++v) {
            const float difference =
                got[row * static_cast<std::size_t>(vocab) + static_cast<std::size_t>(v)] -
                want.values[static_cast<std::size_t>(place * vocab + v)];
            worst = std::max(worst, std::fabs(static_cast<double>(difference)));
        }
        ++row;
    }
    EXPECT_LE(worst, kLogits) << name;
    ::testing::Test::RecordProperty(name, std::to_string(worst));
}

// The gradients of the mean loss; all parameters must have one in the file.
void expect_gradients(DecoderHarness& run, const GoldenFile& golden, const std::string& prefix) {
    const TokenBatch batch = golden.batch();
    const double targets = static_cast<double>(golden.at("num_valid_tokens").integers.at(0));
    ASSERT_EQ(static_cast<double>(batch.num_targets()), targets);
    const double loss = static_cast<double>(run.gradients({batch})) / targets;
    EXPECT_NEAR(loss, static_cast<double>(golden.scalar(prefix + "loss")), kLoss * loss);

    double worst = 0;
    double norm = 0;
    std::string where;
    for (const Parameter& parameter : run.model.parameters()) {
        const std::vector<float> sums = run.values(parameter.gradient);
        ASSERT_TRUE(golden.has("grad." + parameter.name)) << parameter.name;
        const auto& want = golden.at("grad." + parameter.name);
        ASSERT_EQ(want.shape, parameter.gradient.shape()) << parameter.name;
        std::vector<float> mean(want.values.size());
        for (std::size_t i = 0; i < mean.size(); ++i) {
            mean[i] = static_cast<float>(static_cast<double>(sums[i]) / targets);
            norm += static_cast<double>(mean[i]) * static_cast<double>(mean[i]);
            if (want.values[i] == 0) {
                EXPECT_EQ(mean[i], 0) << parameter.name << " element " << i;
            }
        }
        const double error = testing::relative_error(mean.data(), want.values);
        if (error > worst) where = parameter.name;
        worst = std::max(worst, error);
    }
    EXPECT_LE(worst, kGradient) << where;
    EXPECT_NEAR(std::sqrt(norm), static_cast<double>(golden.scalar(prefix + "grad_norm")),
                kGradient * std::sqrt(norm));
    ::testing::Test::RecordProperty("worst_gradient", std::to_string(worst));
    std::printf("    worst gradient %.2g of its norm (%s)\n", worst, where.c_str());
}

// Opens a model, or skips the test by name where its kind is not supported.
#define GARAM_TRY_OR_SKIP(statement)                                                 \
    try {                                                                            \
        statement;                                                                   \
    } catch (const Error& e) {                                                       \
        if (std::string(e.what()).find("not supported") == std::string::npos) throw; \
        GTEST_SKIP() << name() << ": " << e.what();                                  \
    }

std::vector<std::string> peft_cases() {
    std::vector<std::string> cases;
    const auto folder = testing::data_dir() / "golden" / "peft";
    for (const std::string& name : testing::folders_in(folder)) {
        if (std::filesystem::exists(folder / name / "golden.safetensors")) cases.push_back(name);
    }
    return cases;
}

// A folder, and what computes.
using Case = std::tuple<std::string, DeviceProfile>;

std::string test_name(const ::testing::TestParamInfo<Case>& info) {
    std::string name = std::get<0>(info.param);
    for (char& c : name) {
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    }
    const DeviceProfile& profile = std::get<1>(info.param);
    if (profile.is_cuda()) return name + "_" + testing::card_name(profile);
    return profile.isa == detect_cpu_profile().isa ? name : name + "_" + name_of(profile.isa);
}

class GoldenTest : public ::testing::TestWithParam<Case> {
  protected:
    static const std::string& name() { return std::get<0>(GetParam()); }
    static const DeviceProfile& profile() { return std::get<1>(GetParam()); }
};

// The processor as it is, and as if it had nothing beyond AVX2, which most have.
std::vector<DeviceProfile> processors() {
    std::vector<DeviceProfile> profiles{detect_cpu_profile()};
    if (profiles.front().isa > CpuIsa::avx2) {
        DeviceProfile lesser = profiles.front();
        lesser.isa = CpuIsa::avx2;
        lesser.fast_bf16 = lesser.bf16_tiles = false;
        profiles.push_back(lesser);
    }
    return profiles;
}

// For each folder on the processor, and on each card.
#define GARAM_FOR_ALL_FOLDERS(suite, folders)                                                   \
    GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(suite);                                       \
    INSTANTIATE_TEST_SUITE_P(                                                                   \
        Folders, suite,                                                                         \
        ::testing::Combine(::testing::ValuesIn(folders), ::testing::ValuesIn(processors())),    \
        test_name);                                                                             \
    INSTANTIATE_TEST_SUITE_P(Cuda, suite,                                                       \
                             ::testing::Combine(::testing::ValuesIn(folders),                   \
                                                ::testing::ValuesIn(testing::card_profiles())), \
                             test_name)

class PeftGolden : public GoldenTest {};
GARAM_FOR_ALL_FOLDERS(PeftGolden, peft_cases());

TEST_P(PeftGolden, LogitsLossAndEveryGradient) {
    const auto golden_dir = testing::data_dir() / "golden";
    const auto folder = golden_dir / "peft" / name();
    const GoldenFile golden(folder / "golden.safetensors");
    const ModelFiles files = ModelFiles::open(golden_dir / "stories260K-hf");
    Decoder::Options options;
    if (!std::filesystem::exists(folder / "adapter_config.json")) {
        options.trained = Decoder::Trained::all_weights;
        DecoderHarness run(files, options, profile());
        expect_logits(run, golden, "logits");
        expect_gradients(run, golden, "");
        return;
    }
    PeftAdapter adapter;
    GARAM_TRY_OR_SKIP(adapter = read_peft_adapter(folder));
    options.trained = Decoder::Trained::adapter;
    options.lora = adapter.settings;
    DecoderHarness run(files, options, profile());
    run.model.load_adapter(adapter, name());
    expect_logits(run, golden, "logits");
    expect_gradients(run, golden, "");
}

std::vector<std::string> family_folders() {
    return testing::folders_in(testing::data_dir() / "golden" / "families");
}

class FamilyGolden : public GoldenTest {};
GARAM_FOR_ALL_FOLDERS(FamilyGolden, family_folders());

TEST_P(FamilyGolden, AllWeights) {
    const auto folder = testing::data_dir() / "golden" / "families" / name();
    const GoldenFile golden(folder / "golden.safetensors");
    const ModelFiles files = [&] { return ModelFiles::open(folder); }();
    Decoder::Options options;
    options.trained = Decoder::Trained::all_weights;
    std::unique_ptr<DecoderHarness> run;
    GARAM_TRY_OR_SKIP(run = std::make_unique<DecoderHarness>(files, options, profile()));
    expect_logits(*run, golden, "logits");
    expect_gradients(*run, golden, "");
}

TEST_P(FamilyGolden, Adapter) {
    const auto folder = testing::data_dir() / "golden" / "families" / name();
    const GoldenFile golden(folder / "golden.safetensors");
    const ModelFiles files = ModelFiles::open(folder);
    PeftAdapter adapter;
    adapter.settings = {.r = 4, .lora_alpha = 8, .target_modules = {"all-linear"}};
    for (const auto& [name, tensor] : golden.tensors()) {
        if (name.starts_with("base_model.model."))
            adapter.tensors.push_back({name, tensor.shape, tensor.values});
    }
    Decoder::Options options;
    options.trained = Decoder::Trained::adapter;
    options.lora = adapter.settings;
    std::unique_ptr<DecoderHarness> run;
    GARAM_TRY_OR_SKIP(run = std::make_unique<DecoderHarness>(files, options, profile()));
    run->model.load_adapter(adapter, name());
    expect_logits(*run, golden, "lora.logits");
    expect_gradients(*run, golden, "lora.");
}

// The newer field style of config.json means the same model.
TEST_P(FamilyGolden, BothConfigStylesAgree) {
    const auto folder = testing::data_dir() / "golden" / "families" / name();
    const auto read = [&](const char* name) {
        return DecoderConfig::from_json(Json::parse_file(folder / name), name);
    };
    DecoderConfig older;
    GARAM_TRY_OR_SKIP(older = read("config.json"));
    const DecoderConfig newer = read("config.transformers5.json");
    EXPECT_EQ(older.rope.kind, newer.rope.kind);
    EXPECT_EQ(older.rope.theta, newer.rope.theta);
    EXPECT_EQ(older.rope.factor, newer.rope.factor);
    EXPECT_EQ(older.rope.original_max_position, newer.rope.original_max_position);
    EXPECT_EQ(older.head_dim, newer.head_dim);
    EXPECT_EQ(older.qkv_bias, newer.qkv_bias);
    EXPECT_EQ(older.rotary_dim, newer.rotary_dim);
    EXPECT_EQ(older.layers, newer.layers);
    EXPECT_EQ(older.num_layers, newer.num_layers);
    EXPECT_EQ(older.rms_norm_eps, newer.rms_norm_eps);
    EXPECT_EQ(older.activation, newer.activation);
    EXPECT_EQ(older.tie_word_embeddings, newer.tie_word_embeddings);
    EXPECT_EQ(older.eos_ids, newer.eos_ids);
}

// A base that Transformers saved in 4 bits, decoded as it is read.
class QloraGolden : public ::testing::TestWithParam<DeviceProfile> {};
GARAM_FOR_CPU_AND_CARDS(QloraGolden);

TEST_P(QloraGolden, LogitsOfTheBase) {
    GARAM_REQUIRE_DATA("golden/qlora");
    const auto folder = testing::data_dir() / "golden" / "qlora";
    const GoldenFile golden(folder / "nf4_logits.safetensors");
    const ModelFiles files = ModelFiles::open(folder / "stories260K-nf4");
    DecoderHarness run(files, {}, GetParam());
    expect_logits(run, golden, "logits");
    int compared = 0;
    for (const auto& [name, want] : golden.tensors()) {
        if (!name.starts_with("dequant.")) continue;
        const StoredTensor& stored = files.at(name.substr(std::string("dequant.").size()));
        ASSERT_EQ(stored.shape, want.shape) << name;
        std::vector<float> values(want.values.size());
        read_tensor(stored, values.data());
        EXPECT_EQ(values, want.values) << name;
        ++compared;
    }
    EXPECT_EQ(compared, 2);
}

TEST_P(QloraGolden, LogitsLossAndEveryGradient) {
    GARAM_REQUIRE_DATA("golden/qlora");
    const auto folder = testing::data_dir() / "golden" / "qlora";
    const GoldenFile golden(folder / "qlora_r8_all_golden.safetensors");
    const ModelFiles files = ModelFiles::open(folder / "stories260K-nf4");
    PeftAdapter adapter;
    adapter.settings = {.r = 8, .lora_alpha = 16, .target_modules = {"all-linear"}};
    for (const auto& [name, tensor] : golden.tensors()) {
        if (name.starts_with("base_model.model."))
            adapter.tensors.push_back({name, tensor.shape, tensor.values});
    }
    Decoder::Options options;
    options.trained = Decoder::Trained::adapter;
    options.lora = adapter.settings;
    DecoderHarness run(files, options, GetParam());
    run.model.load_adapter(adapter, "qlora");
    expect_logits(run, golden, "logits");
    expect_gradients(run, golden, "");
}

// One adapter gives the same logits on the GGUF and the Hugging Face form of a base.
class GgufGolden : public ::testing::TestWithParam<DeviceProfile> {};
GARAM_FOR_CPU_AND_CARDS(GgufGolden);

TEST_P(GgufGolden, GgufAndHuggingFaceFormsAgree) {
    GARAM_REQUIRE_DATA("golden/gguf/llama-f32.gguf");
    const auto golden_dir = testing::data_dir() / "golden";
    const auto folder = golden_dir / "families" / "llama-llama3rope-tied";
    const GoldenFile golden(folder / "golden.safetensors");
    const PeftAdapter adapter = read_peft_adapter(folder / "adapter");
    Decoder::Options options;
    options.lora = adapter.settings;
    std::vector<std::vector<float>> logits;
    for (const auto& path : {folder, golden_dir / "gguf" / "llama-f32.gguf"}) {
        const ModelFiles files = ModelFiles::open(path);
        DecoderHarness run(files, options, GetParam());
        run.model.load_adapter(adapter, "adapter");
        expect_logits(run, golden, "lora.logits");
        logits.push_back(run.logits(golden.batch()));
    }
    EXPECT_EQ(logits[0], logits[1]);
}

}  // namespace
}  // namespace garam
