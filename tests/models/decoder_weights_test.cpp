// What the files of a model may get wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "garam/core/error.h"
#include "garam/io/safetensors.h"
#include "models/decoder_harness.h"
#include "testing/temp_dir.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

using testing::DecoderHarness;
using testing::TempDir;
using testing::TinyModel;
using testing::write_tiny_model;

// Rewrites model.safetensors with one tensor changed by `change(name, shape, values)`; a tensor whose
// values become empty is left out.
template <typename Change>
void rewrite(const std::filesystem::path& folder, const TinyModel& model, Change change) {
    auto weights = model.weights();
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (auto& [name, values] : weights) {
        Shape shape;
        for (const std::int64_t extent : model.shape_of(name))
            shape.append(extent);
        change(name, shape, values);
        if (values.empty()) continue;
        tensors.emplace_back(name, Tensor(values.data(), DType::f32, shape, DeviceKind::cpu));
    }
    write_safetensors(folder / "model.safetensors", tensors);
}

std::string load_error(const std::filesystem::path& folder, const Decoder::Options& options = {}) {
    try {
        const ModelFiles files = ModelFiles::open(folder);
        const DecoderHarness run(files, options);
    } catch (const Error& e) {
        return e.what();
    }
    return "";
}

void expect_mentions(const std::string& message, const std::vector<std::string>& parts) {
    for (const std::string& part : parts)
        EXPECT_NE(message.find(part), std::string::npos) << "\"" << part << "\" in: " << message;
}

TEST(DecoderWeights, TiedUntiedBiasedAndEveryDtypeLoad) {
    for (const bool tied : {true, false}) {
        for (const char* dtype : {"f32", "f16", "bf16"}) {
            for (const DType compute : {DType::f32, DType::bf16}) {
                const TempDir dir;
                TinyModel model;
                model.tied = tied;
                model.biases = tied;
                model.dtype = dtype;
                write_tiny_model(dir.path(), model);
                Decoder::Options options;
                options.compute = compute;
                EXPECT_EQ(load_error(dir.path(), options), "");
            }
        }
    }
}

TEST(DecoderWeights, ShapeAgainstConfigNamesTensorAndBothShapes) {
    const TempDir dir;
    const TinyModel model;
    write_tiny_model(dir.path(), model);
    rewrite(dir.path(), model, [](const std::string& name, Shape& shape, auto&) {
        if (name == "model.layers.1.mlp.up_proj.weight") shape = Shape{24, 40};
    });
    expect_mentions(load_error(dir.path()),
                    {"model.layers.1.mlp.up_proj.weight", "[24, 40]", "[40, 24]"});
}

TEST(DecoderWeights, MissingAndUnknownTensors) {
    const TempDir dir;
    const TinyModel model;
    write_tiny_model(dir.path(), model);
    rewrite(dir.path(), model, [](const std::string& name, Shape&, auto& values) {
        if (name == "model.norm.weight") values.clear();
    });
    expect_mentions(load_error(dir.path()), {"model.norm.weight", "missing"});

    TinyModel biased;
    biased.biases = true;
    write_tiny_model(dir.path(), biased);
    std::ofstream(dir / "config.json") << model.config().dump();
    expect_mentions(load_error(dir.path()), {".bias", "attention_bias false"});
}

TEST(DecoderWeights, MoreLayersThanTensorsAreRefusedBeforeTheyAreMade) {
    const TempDir dir;
    const TinyModel model;
    write_tiny_model(dir.path(), model);
    Json config = model.config();
    config.set("num_hidden_layers", 65536);
    std::ofstream(dir / "config.json") << config.dump();
    expect_mentions(load_error(dir.path()),
                    {dir.path().string(), "num_hidden_layers is 65536", "tensors"});
}

TEST(DecoderWeights, NotFiniteIsRefused) {
    const TempDir dir;
    const TinyModel model;
    write_tiny_model(dir.path(), model);
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
        rewrite(dir.path(), model, [&](const std::string& name, Shape&, auto& values) {
            if (name == "model.layers.0.self_attn.v_proj.weight") values[77] = bad;
        });
        for (const DType compute : {DType::f32, DType::bf16}) {
            Decoder::Options options;
            options.compute = compute;
            expect_mentions(load_error(dir.path(), options),
                            {"model.layers.0.self_attn.v_proj.weight", "77"});
        }
    }
}

TEST(DecoderWeights, UntiedHeadOfATiedConfig) {
    const TempDir dir;
    TinyModel model;
    model.tied = false;
    write_tiny_model(dir.path(), model);
    TinyModel tied = model;
    tied.tied = true;
    std::ofstream(dir / "config.json") << tied.config().dump();
    expect_mentions(load_error(dir.path()), {"lm_head.weight", "tie_word_embeddings"});
}

TEST(DecoderWeights, HeadIsTiedWhereConfigIsSilentAndFileHasNone) {
    const TempDir dir;
    const TinyModel model;
    write_tiny_model(dir.path(), model);
    const Json whole = model.config();
    Json config{Json::Object{}};
    for (const auto& [key, value] : whole.object()) {
        if (key != "tie_word_embeddings") config.set(key, value);
    }
    std::ofstream(dir / "config.json") << config.dump();
    EXPECT_EQ(load_error(dir.path()), "");
    config.set("tie_word_embeddings", false);
    std::ofstream(dir / "config.json") << config.dump();
    expect_mentions(load_error(dir.path()), {"lm_head.weight", "missing"});
}

TEST(DecoderWeights, TargetsThatMatchNothing) {
    const TempDir dir;
    write_tiny_model(dir.path());
    Decoder::Options options;
    options.lora = LoraSettings{.target_modules = {"q_proj", "query_key_value"}};
    options.trained = Decoder::Trained::adapter;
    expect_mentions(load_error(dir.path(), options), {"query_key_value", "q_proj"});
}

TEST(DecoderWeights, AdapterOfAnotherBase) {
    const TempDir dir;
    write_tiny_model(dir.path());
    const ModelFiles files = ModelFiles::open(dir.path());
    Decoder::Options options;
    options.lora = LoraSettings{.r = 2, .target_modules = {"q_proj"}};
    DecoderHarness run(files, options);
    PeftAdapter adapter{*options.lora, {}};
    const std::string a = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
    adapter.tensors.push_back({a, {2, 64}, std::vector<float>(128)});
    const auto error = [&] {
        try {
            run.model.load_adapter(adapter, "other");
        } catch (const Error& e) {
            return std::string(e.what());
        }
        return std::string();
    };
    expect_mentions(error(), {"other", a, "[2, 64]", "[2, 24]"});
    adapter.tensors[0] = {a, {2, 24}, std::vector<float>(48)};
    expect_mentions(error(), {"lora_B.weight", "missing"});
    adapter.tensors[0].name = "base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight";
    expect_mentions(error(), {"layers.7"});
}

// PEFT's initialisation: A uniform within 1/sqrt(in), B zero, so a new adapter changes nothing.
TEST(DecoderWeights, NewAdapterStartsAsPeftDoes) {
    const TempDir dir;
    write_tiny_model(dir.path());
    const ModelFiles files = ModelFiles::open(dir.path());
    Decoder::Options options;
    options.trained = Decoder::Trained::adapter;
    options.lora = LoraSettings{.r = 16, .target_modules = {"all-linear"}};
    DecoderHarness run(files, options);
    EXPECT_EQ(run.model.parameters().size(), 2u * 7u * 2u);
    for (const Parameter& parameter : run.model.parameters()) {
        double sum = 0;
        double squares = 0;
        double largest = 0;
        const auto count = static_cast<double>(parameter.master.elements());
        for (std::int64_t i = 0; i < parameter.master.elements(); ++i) {
            const auto value = static_cast<double>(parameter.master.data<float>()[i]);
            sum += value;
            squares += value * value;
            largest = std::max(largest, std::fabs(value));
        }
        if (parameter.name.ends_with("lora_B.weight")) {
            EXPECT_EQ(largest, 0);
            continue;
        }
        const double bound = 1 / std::sqrt(static_cast<double>(parameter.master.columns()));
        EXPECT_LE(largest, bound);
        // Standard errors of a uniform's mean and variance, five of them.
        EXPECT_NEAR(sum / count, 0, 5 * bound / std::sqrt(3 * count));
        EXPECT_NEAR(squares / count, bound * bound / 3,
                    5 * bound * bound * std::sqrt(4.0 / 45 / count));
    }
}

}  // namespace
}  // namespace garam
