// `garam merge` and `garam export` of an adapter whose base was in 4 bits in training.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "app/run_garam.h"
#include "garam/io/model_files.h"
#include "garam/io/peft_adapter.h"
#include "garam/io/safetensors.h"
#include "garam/models/four_bit_base.h"
#include "testing/golden_batch.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam {
namespace {

using testing::GoldenFile;
using testing::path_of;
using testing::run_garam;
using testing::RunResult;
using testing::TempDir;

constexpr const char* kOriginal = "golden/stories260K-hf";
constexpr const char* kFourBit = "golden/qlora/stories260K-nf4";

BaseQuantization nf4_double() {
    BaseQuantization quantize;
    quantize.format = QuantFormat::nf4;
    quantize.double_quantization = true;
    return quantize;
}

// The golden's adapter as a folder, and the 4-bit base with a tokenizer, which the golden lacks.
struct Folders {
    TempDir dir;
    std::string base;
    std::string adapter;

    explicit Folders(const std::optional<BaseQuantization>& quantize = {})
        : base((dir / "base").string()), adapter((dir / "adapter").string()) {
        std::filesystem::copy(path_of(kFourBit), base);
        for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
            std::filesystem::copy_file(std::filesystem::path(path_of(kOriginal)) / file,
                                       dir / "base" / file);
        std::filesystem::create_directory(adapter);
        const GoldenFile golden(path_of("golden/qlora/qlora_r8_all_golden.safetensors"));
        LoraSettings settings{.r = 8, .lora_alpha = 16, .target_modules = {"all-linear"}};
        std::vector<std::pair<std::string, Tensor>> tensors;
        for (const auto& [name, tensor] : golden.tensors()) {
            if (name.starts_with("base_model.model."))
                tensors.emplace_back(name, Tensor(const_cast<float*>(tensor.values.data()),
                                                  DType::f32, tensor.shape, DeviceKind::cpu));
        }
        write_peft_adapter(adapter, settings, tensors, quantize);
    }
};

std::vector<float> values_of(const StoredTensor& tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.shape.elements()));
    read_tensor(tensor, values.data());
    return values;
}

// The largest difference of a weight of two models.
double distance(const std::string& a, const std::string& b) {
    const ModelFiles first = ModelFiles::open(a);
    const ModelFiles second = ModelFiles::open(b);
    EXPECT_EQ(first.tensors().size(), second.tensors().size());
    double worst = 0;
    for (const StoredTensor& tensor : first.tensors()) {
        const std::vector<float> x = values_of(tensor);
        const std::vector<float> y = values_of(second.at(tensor.name));
        for (std::size_t i = 0; i < x.size(); ++i)
            worst =
                std::max(worst, std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i])));
    }
    return worst;
}

// The number behind `words`.
double number_after(const std::string& text, const std::string& words) {
    const std::size_t at = text.find(words);
    EXPECT_NE(at, std::string::npos) << text << "\nlacks " << words;
    return at == std::string::npos ? NAN : std::stod(text.substr(at + words.size()));
}

// CASES 14.
TEST(FourBitMerge, IntoTheValuesThatTrainingSaw) {
    GARAM_REQUIRE_DATA("golden/qlora");
    const Folders folders;
    const std::string out = (folders.dir / "merged").string();
    const RunResult result =
        run_garam({"merge", folders.base, folders.adapter, out, "--dtype", "f32"});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("merged into the values that training saw: nf4 decoded from " +
                              folders.base),
              std::string::npos)
        << result.out;
    // As for a merge into fp32 weights (golden/README: 3e-5, ten times that).
    EXPECT_LE(number_after(result.out, "largest difference of a logit "), 3e-4);
    EXPECT_NEAR(number_after(result.out, " before, "), number_after(result.out, ": loss "), 1e-3);
    const ModelFiles merged = ModelFiles::open(out);
    EXPECT_EQ(merged.config().find("quantization_config"), nullptr);
    EXPECT_FALSE(is_in_four_bits(merged));
}

TEST(FourBitMerge, SixteenBitsByDefault) {
    GARAM_REQUIRE_DATA("golden/qlora");
    const Folders folders;
    const std::string out = (folders.dir / "merged").string();
    const RunResult result = run_garam({"merge", folders.base, folders.adapter, out});
    ASSERT_EQ(result.status, 0) << result.err;
    const ModelFiles merged = ModelFiles::open(out);
    for (const StoredTensor& tensor : merged.tensors())
        EXPECT_EQ(tensor.type, StoredType::bf16) << tensor.name;
}

// An adapter that tells how its base was quantised while it was loaded.
TEST(FourBitMerge, ABaseThatWasQuantisedForTrainingIsQuantisedAgain) {
    GARAM_REQUIRE_DATA("golden/qlora");
    const Folders plain;
    const Folders telling(nf4_double());
    EXPECT_FALSE(read_peft_adapter(plain.adapter).base_quantization.has_value());
    const std::string from_folder = (plain.dir / "merged").string();
    const std::string from_original = (telling.dir / "merged").string();
    ASSERT_EQ(run_garam({"merge", plain.base, plain.adapter, from_folder, "--dtype", "f32"}).status,
              0);
    const RunResult result =
        run_garam({"merge", path_of(kOriginal), telling.adapter, from_original, "--dtype", "f32"});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("quantised to nf4, blocks of 64, scales in 8 bits"),
              std::string::npos)
        << result.out;
    EXPECT_LE(number_after(result.out, "largest difference of a logit "), 3e-4);
    // bitsandbytes' own file has an 8-bit code or two of the table that it looks up, one off: 1/64 of a scale.
    EXPECT_LE(distance(from_folder, from_original), 0.04);
    // Merged as if the base had not been quantised it is another model.
    const std::string unaware = (plain.dir / "unaware").string();
    ASSERT_EQ(
        run_garam({"merge", path_of(kOriginal), plain.adapter, unaware, "--dtype", "f32"}).status,
        0);
    EXPECT_GT(distance(from_original, unaware), 0.1);
}

TEST(FourBitMerge, IntoTheOriginalWeightsOnRequest) {
    GARAM_REQUIRE_DATA("golden/qlora");
    const Folders plain;
    const Folders telling(nf4_double());
    const std::string want = (plain.dir / "want").string();
    ASSERT_EQ(
        run_garam({"merge", path_of(kOriginal), plain.adapter, want, "--dtype", "f32"}).status, 0);
    for (const auto& [model, adapter] :
         {std::pair{plain.base, plain.adapter}, std::pair{path_of(kOriginal), telling.adapter}}) {
        const TempDir dir;
        const std::string out = (dir / "merged").string();
        const RunResult result = run_garam(
            {"merge", model, adapter, out, "--base", path_of(kOriginal), "--dtype", "f32"});
        ASSERT_EQ(result.status, 0) << result.err;
        EXPECT_NE(result.out.find("merged into the original weights of " + path_of(kOriginal)),
                  std::string::npos);
        EXPECT_EQ(distance(out, want), 0);
        // What was trained over 4 bits is not what comes out.
        EXPECT_GT(number_after(result.out, "largest difference of a logit "), 0.01);
    }
}

TEST(FourBitMerge, AWrongOriginalIsRefusedByName) {
    GARAM_REQUIRE_DATA("golden/qlora");
    const Folders folders;
    const std::string out = (folders.dir / "merged").string();
    const auto refused = [&](const std::vector<std::string>& arguments, const std::string& part) {
        const RunResult result = run_garam(arguments);
        EXPECT_EQ(result.status, 2);
        EXPECT_NE(result.err.find(part), std::string::npos) << result.err << "\nlacks " << part;
        EXPECT_FALSE(std::filesystem::exists(out));
    };
    refused({"merge", folders.base, folders.adapter, out, "--base", folders.base},
            "as nf4: give the weights that it was made from");
    const std::string q8 = (folders.dir / "q8.gguf").string();
    ASSERT_EQ(run_garam({"export", path_of(kOriginal), q8, "--type", "q8_0"}).status, 0);
    refused({"merge", folders.base, folders.adapter, out, "--base", q8},
            "as q8_0: give the weights that it was made from");
    refused({"merge", folders.base, folders.adapter, out, "--base",
             path_of("golden/families/llama-llama3rope-tied")},
            "it is not the model that the 4 bits were made from");
    refused({"merge", path_of(kOriginal), folders.adapter, out, "--base", path_of(kOriginal)},
            "--base is for adapters that were trained over 4 bits");
}

// A model of the same tensors whose values are another's: here those of another layer.
TEST(FourBitMerge, OriginalWeightsOfOtherValuesAreRefused) {
    GARAM_REQUIRE_DATA("golden/qlora");
    const Folders plain;
    const Folders telling(nf4_double());
    const std::string other = (plain.dir / "other").string();
    std::filesystem::create_directory(other);
    std::filesystem::copy(path_of(kOriginal), other);
    const std::string file = other + "/model.safetensors";
    {
        const ModelFiles original = ModelFiles::open(path_of(kOriginal));
        std::vector<std::vector<float>> values;
        std::vector<std::pair<std::string, Tensor>> tensors;
        for (const StoredTensor& tensor : original.tensors()) {
            std::string name = tensor.name;
            if (const std::size_t at = name.find(".layers.0.mlp."); at != std::string::npos)
                name.replace(at, 10, ".layers.1.");
            values.push_back(values_of(original.at(name)));
            tensors.emplace_back(tensor.name, Tensor(values.back().data(), DType::f32, tensor.shape,
                                                     DeviceKind::cpu));
        }
        std::filesystem::remove(file);
        write_safetensors(file, tensors);
    }
    for (const auto& [model, adapter] :
         {std::pair{plain.base, plain.adapter}, std::pair{path_of(kOriginal), telling.adapter}}) {
        const std::string out = (plain.dir / "merged").string();
        const RunResult result = run_garam({"merge", model, adapter, out, "--base", other});
        EXPECT_EQ(result.status, 2);
        EXPECT_NE(result.err.find("values of model.layers.0.mlp."), std::string::npos)
            << result.err;
        EXPECT_FALSE(std::filesystem::exists(out));
    }
}

// What an adapter tells of its base is not that of the folder, or of the other adapter.
TEST(FourBitMerge, OtherFourBitsThanTrainingSawAreRefused) {
    GARAM_REQUIRE_DATA("golden/qlora");
    const Folders plain;
    BaseQuantization fp4 = nf4_double();
    fp4.format = QuantFormat::fp4;
    const Folders telling(fp4);
    const std::string out = (plain.dir / "merged").string();
    const auto refused = [&](const std::vector<std::string>& arguments, const std::string& part) {
        const RunResult result = run_garam(arguments);
        EXPECT_EQ(result.status, 2);
        EXPECT_NE(result.err.find(part), std::string::npos) << result.err << "\nlacks " << part;
        EXPECT_FALSE(std::filesystem::exists(out));
    };
    refused({"merge", plain.base, telling.adapter, out},
            "was trained over fp4, blocks of 64, scales in 8 bits, " + plain.base + " has ");
    refused({"merge", path_of(kOriginal), telling.adapter, plain.adapter, out},
            "another over the weights as they are");
    const RunResult text = run_garam({"generate", plain.base, "--adapter", telling.adapter,
                                      "--prompt", "a", "--max-new-tokens", "2"});
    EXPECT_EQ(text.status, 0) << text.err;
    EXPECT_NE(text.err.find("was trained over fp4"), std::string::npos) << text.err;
}

TEST(FourBitMerge, ExportsLikewise) {
    GARAM_REQUIRE_DATA("golden/qlora");
    const Folders folders;
    const std::string merged = (folders.dir / "merged").string();
    ASSERT_EQ(run_garam({"merge", folders.base, folders.adapter, merged, "--dtype", "f32"}).status,
              0);
    const std::string out = (folders.dir / "model.gguf").string();
    const RunResult result =
        run_garam({"export", folders.base, out, "--adapter", folders.adapter, "--type", "f32"});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("merged into the values that training saw"), std::string::npos)
        << result.out;
    EXPECT_EQ(distance(out, merged), 0);
}

}  // namespace
}  // namespace garam
