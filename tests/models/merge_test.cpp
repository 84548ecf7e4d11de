// Merged weights against PEFT's, against exact sums, and as models of their own.
#include "garam/models/merge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "garam/core/error.h"
#include "garam/core/philox.h"
#include "garam/io/safetensors.h"
#include "models/decoder_harness.h"
#include "testing/golden_batch.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

using testing::data_dir;
using testing::DecoderHarness;
using testing::GoldenFile;
using testing::TempDir;
using testing::TinyModel;
using testing::write_tiny_model;

constexpr double kLogits = 3e-4;  // ten times the reference's own noise (decoder_golden_test.cpp)
constexpr double kHalfUnit = 0x1p-24;  // of fp32, relative

std::vector<float> values_of(const StoredTensor& tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.shape.elements()));
    read_tensor(tensor, values.data());
    return values;
}

const AdapterTensor& tensor_of(const PeftAdapter& adapter, const std::string& name) {
    const auto found = std::find_if(adapter.tensors.begin(), adapter.tensors.end(),
                                    [&](const AdapterTensor& t) { return t.name == name; });
    if (found == adapter.tensors.end()) throw Error("no " + name);
    return *found;
}

bool has_tensor(const PeftAdapter& adapter, const std::string& weight) {
    const std::string a =
        "base_model.model." + weight.substr(0, weight.size() - 7) + ".lora_A.weight";
    return std::any_of(adapter.tensors.begin(), adapter.tensors.end(),
                       [&](const AdapterTensor& t) { return t.name == a; });
}

// W + s B A element by element in long double, with DoRA its rows brought to their lengths, and the sum of the
// sizes of its terms.
struct Exact {
    std::vector<long double> value;
    std::vector<long double> size;
};
Exact exact_merge(const std::vector<float>& weight, const PeftAdapter& adapter,
                  const std::string& name) {
    const std::string path = "base_model.model." + name.substr(0, name.size() - 7);
    const AdapterTensor& a = tensor_of(adapter, path + ".lora_A.weight");
    const AdapterTensor& b = tensor_of(adapter, path + ".lora_B.weight");
    const auto in = static_cast<std::size_t>(a.shape[1]);
    const auto r = static_cast<std::size_t>(a.shape[0]);
    Exact exact;
    for (std::size_t e = 0; e < weight.size(); ++e) {
        long double change = 0;
        long double size = 0;
        for (std::size_t k = 0; k < r; ++k) {
            const long double term = static_cast<long double>(b.values[e / in * r + k]) *
                                     static_cast<long double>(a.values[k * in + e % in]);
            change += term;
            size += std::abs(term);
        }
        const long double s = adapter.settings.scaling();
        exact.value.push_back(static_cast<long double>(weight[e]) + s * change);
        exact.size.push_back(std::abs(static_cast<long double>(weight[e])) + s * size);
    }
    if (!adapter.settings.use_dora) return exact;
    const AdapterTensor& m = tensor_of(adapter, path + ".lora_magnitude_vector");
    for (std::size_t o = 0; o < m.values.size(); ++o) {
        long double squares = 0;
        for (std::size_t i = 0; i < in; ++i)
            squares += exact.value[o * in + i] * exact.value[o * in + i];
        const long double c = static_cast<long double>(m.values[o]) / std::sqrt(squares);
        for (std::size_t i = 0; i < in; ++i) {
            exact.value[o * in + i] *= c;
            exact.size[o * in + i] *= std::abs(c);
        }
    }
    return exact;
}

void expect_logits(const std::filesystem::path& folder, const GoldenFile& golden,
                   const std::string& name) {
    const ModelFiles files = ModelFiles::open(folder);
    DecoderHarness run(files, {});
    const std::vector<float> got = run.logits(golden.batch());
    const auto& want = golden.at(name);
    const std::int64_t vocab = want.shape.back();
    double worst = 0;
    std::size_t at = 0;
    for (const std::int64_t place : golden.places()) {
        for (std::int64_t v = 0; v < vocab; ++v, ++at)
            worst = std::max(
                worst, std::abs(static_cast<double>(got[at]) -
                                static_cast<double>(
                                    want.values[static_cast<std::size_t>(place * vocab + v)])));
    }
    EXPECT_LE(worst, kLogits);
}

class MergeGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(MergeGolden, AgreesWithPeft) {
    GARAM_REQUIRE_DATA("golden/stories260K-hf");
    const std::filesystem::path folder = data_dir() / "golden/peft" / GetParam();
    if (!std::filesystem::exists(folder / "adapter_config.json") ||
        !std::filesystem::exists(folder / "golden.safetensors"))
        GTEST_SKIP() << GetParam() << ": no adapter with merged weights";
    PeftAdapter adapter;
    try {
        adapter = read_peft_adapter(folder);
    } catch (const Error& error) {
        GTEST_SKIP() << GetParam() << ": " << error.what();
    }
    const ModelFiles base = ModelFiles::open(data_dir() / "golden/stories260K-hf");
    const TempDir dir;
    const MergeReport report = write_merged_model(base, adapter, folder.string(), dir.path(), {});
    EXPECT_EQ(report.dtype, DType::f32);
    EXPECT_EQ(
        report.merged_tensors,
        static_cast<std::int64_t>(adapter.tensors.size() / (adapter.settings.use_dora ? 3 : 2)));

    const GoldenFile golden(folder / "golden.safetensors");
    const auto merged = SafetensorsFile::open(dir / "model.safetensors");
    const auto r = static_cast<double>(adapter.settings.r);
    int compared = 0;
    for (const auto& [key, want] : golden.tensors()) {
        if (!key.starts_with("merged.")) continue;
        const std::string name = key.substr(7);
        const StoredTensor* stored = merged->find(name);
        ASSERT_NE(stored, nullptr) << name;
        const std::vector<float> got = values_of(*stored);
        ASSERT_EQ(got.size(), want.values.size()) << name;
        const std::vector<float> weight = values_of(base.at(name));
        if (!has_tensor(adapter, name)) {
            EXPECT_EQ(got, want.values) << name;
            continue;
        }
        ++compared;
        const Exact exact = exact_merge(weight, adapter, name);
        for (std::size_t e = 0; e < got.size(); ++e) {
            // Ours is rounded once; PEFT's after each of r products and sums, the scaling and the
            // sum with W, every one by half a unit of at most the size of all terms.
            const auto size = static_cast<double>(exact.size[e]);
            ASSERT_NEAR(got[e], static_cast<double>(exact.value[e]), kHalfUnit * size) << name;
            // DoRA's norm: all of V's errors at once, a sum of squares, a root, a quotient and a product.
            const double dora = adapter.settings.use_dora ? 2 * r + 3 + 16 : 0;
            ASSERT_NEAR(got[e], want.values[e], (2 * r + 3 + dora) * kHalfUnit * size) << name;
        }
    }
    EXPECT_GT(compared, 0);
    expect_logits(dir.path(), golden, "logits");
}

INSTANTIATE_TEST_SUITE_P(Peft, MergeGolden,
                         ::testing::ValuesIn(testing::folders_in(data_dir() / "golden/peft")),
                         [](const auto& param_info) { return param_info.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MergeGolden);

// The GGUF keeps divisors only: the merged folder must compute with the same frequencies.
TEST(MergeGguf, GivesAFolderThatComputesTheSame) {
    GARAM_REQUIRE_DATA("golden/gguf/llama-f32.gguf");
    const std::filesystem::path family = data_dir() / "golden/families/llama-llama3rope-tied";
    const PeftAdapter adapter = read_peft_adapter(family / "adapter");
    const ModelFiles base = ModelFiles::open(data_dir() / "golden/gguf/llama-f32.gguf");
    const TempDir dir;
    const MergeReport report = write_merged_model(base, adapter, "adapter", dir.path(),
                                                  {.bos_id = 1, .eos_id = 2, .pad_id = 0});
    EXPECT_EQ(report.dtype, DType::f32);
    EXPECT_FALSE(report.was_quantised);
    const GoldenFile golden(family / "golden.safetensors");
    expect_logits(dir.path(), golden, "lora.logits");
    const Json config = Json::parse_file(dir / "config.json");
    EXPECT_EQ(config.at("rope_scaling").at("rope_type").string(), "llama3");
    EXPECT_EQ(config.at("torch_dtype").string(), "float32");
    EXPECT_TRUE(config.at("tie_word_embeddings").boolean());
    EXPECT_EQ(config.at("pad_token_id").integer(), 0);
    EXPECT_EQ(config.find("garam_rope_divisors"), nullptr);
}

PeftAdapter tiny_adapter(const TinyModel& model, const std::vector<std::string>& weights,
                         std::int64_t r = 3) {
    PeftAdapter adapter;
    adapter.settings.r = r;
    adapter.settings.lora_alpha = 5;
    std::uint64_t stream = 100;
    for (const std::string& weight : weights) {
        const std::string path = "base_model.model." + weight.substr(0, weight.size() - 7);
        const std::vector<std::int64_t> shape = model.shape_of(weight);
        const auto add = [&](const std::string& suffix, const Shape& of) {
            Random random(9, stream++);
            AdapterTensor tensor{path + suffix, of, {}};
            for (std::int64_t i = 0; i < of.elements(); ++i)
                tensor.values.push_back(static_cast<float>(0.3 * random.normal()));
            adapter.tensors.push_back(std::move(tensor));
        };
        add(".lora_A.weight", {r, shape[1]});
        add(".lora_B.weight", {shape[0], r});
    }
    return adapter;
}

const std::string kUp = "model.layers.1.mlp.up_proj.weight";
const std::string kKey = "model.layers.0.self_attn.k_proj.weight";

// Half the distance between neighbouring values of the format around x.
double half_spacing(double x, int precision, int smallest_exponent) {
    const int exponent = std::max(x == 0 ? smallest_exponent : std::ilogb(x), smallest_exponent);
    return std::ldexp(1.0, exponent - precision);
}

TEST(Merge, EachWeightIsRoundedOnce) {
    const TempDir dir;
    TinyModel model;
    model.dtype = "bf16";
    write_tiny_model(dir / "base", model);
    const ModelFiles base = ModelFiles::open(dir / "base");
    const PeftAdapter adapter = tiny_adapter(model, {kUp, kKey});
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
        const std::filesystem::path out = dir / std::string(name_of(dtype));
        std::filesystem::create_directory(out);
        const MergeReport report = write_merged_model(base, adapter, "a", out, {.dtype = dtype});
        EXPECT_EQ(report.dtype, dtype);
        EXPECT_EQ(report.merged_tensors, 2);
        const auto file = SafetensorsFile::open(out / "model.safetensors");
        for (const std::string& name : {kUp, kKey}) {
            const Exact exact = exact_merge(values_of(base.at(name)), adapter, name);
            const std::vector<float> got = values_of(*file->find(name));
            const int precision = dtype == DType::f32 ? 24 : dtype == DType::f16 ? 11 : 8;
            const int smallest = dtype == DType::f16 ? -14 : -126;
            for (std::size_t e = 0; e < got.size(); ++e) {
                const auto want = static_cast<double>(exact.value[e]);
                // Half a unit, and what double arithmetic may add to it at a tie.
                ASSERT_LE(std::abs(got[e] - want),
                          half_spacing(want, precision, smallest) * (1 + 0x1p-20))
                    << name_of(dtype) << " " << name << " " << e;
            }
        }
        for (const StoredTensor& tensor : file->tensors()) {
            EXPECT_EQ(name_of(tensor.type), name_of(dtype)) << tensor.name;
            if (tensor.name == kUp || tensor.name == kKey || dtype == DType::f16) continue;
            EXPECT_EQ(values_of(tensor), values_of(base.at(tensor.name))) << tensor.name;
        }
        const Json config = Json::parse_file(out / "config.json");
        EXPECT_EQ(config.at("torch_dtype").string(), dtype == DType::f32   ? "float32"
                                                     : dtype == DType::f16 ? "float16"
                                                                           : "bfloat16");
    }
}

TEST(Merge, KeepsDtypeFieldStyleAndTies) {
    const TempDir dir;
    TinyModel model;
    model.dtype = "bf16";
    write_tiny_model(dir / "base", model);
    Json config = model.config();
    config.set("dtype", "bfloat16");
    config.set("_name_or_path", "some/base");
    config.set("a_key_of_their_own", 7);
    std::ofstream(dir / "base" / "config.json") << config.dump();
    std::ofstream(dir / "base" / "generation_config.json") << R"({"eos_token_id": 258})";
    std::filesystem::create_directory(dir / "out");
    write_merged_model(ModelFiles::open(dir / "base"), tiny_adapter(model, {kUp}), "a", dir / "out",
                       {});
    const Json merged = Json::parse_file(dir / "out" / "config.json");
    EXPECT_EQ(merged.at("dtype").string(), "bfloat16");
    EXPECT_EQ(merged.at("a_key_of_their_own").integer(), 7);
    EXPECT_EQ(merged.find("_name_or_path"), nullptr);
    EXPECT_TRUE(merged.at("tie_word_embeddings").boolean());
    const auto file = SafetensorsFile::open(dir / "out" / "model.safetensors");
    EXPECT_EQ(file->find("lm_head.weight"), nullptr);
    EXPECT_EQ(file->find(kUp)->type, StoredType::bf16);
    EXPECT_EQ(testing::read_file(dir / "out" / "generation_config.json"),
              R"({"eos_token_id": 258})");
}

TEST(Merge, UntiedHeadsAreWritten) {
    const TempDir dir;
    TinyModel model;
    model.tied = false;
    write_tiny_model(dir / "base", model);
    std::filesystem::create_directory(dir / "out");
    write_merged_model(ModelFiles::open(dir / "base"), tiny_adapter(model, {kUp}), "a", dir / "out",
                       {});
    EXPECT_NE(SafetensorsFile::open(dir / "out" / "model.safetensors")->find("lm_head.weight"),
              nullptr);
    EXPECT_FALSE(Json::parse_file(dir / "out" / "config.json").at("tie_word_embeddings").boolean());
}

TEST(Merge, ShardsAreOneModel) {
    const TempDir dir;
    const TinyModel model;
    write_tiny_model(dir / "base", model);
    const ModelFiles base = ModelFiles::open(dir / "base");
    const PeftAdapter adapter = tiny_adapter(model, {kUp, kKey});
    std::filesystem::create_directory(dir / "whole");
    std::filesystem::create_directory(dir / "shards");
    write_merged_model(base, adapter, "a", dir / "whole", {});
    write_merged_model(base, adapter, "a", dir / "shards", {.shard_bytes = 9000});
    EXPECT_FALSE(std::filesystem::exists(dir / "shards" / "model.safetensors"));
    EXPECT_TRUE(std::filesystem::exists(dir / "shards" / "model.safetensors.index.json"));
    const ModelFiles whole = ModelFiles::open(dir / "whole");
    const ModelFiles shards = ModelFiles::open(dir / "shards");
    ASSERT_EQ(shards.tensors().size(), whole.tensors().size());
    for (const StoredTensor& tensor : whole.tensors())
        EXPECT_EQ(values_of(shards.at(tensor.name)), values_of(tensor)) << tensor.name;
}

template <typename F>
std::string message_of(const F& call) {
    try {
        call();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

TEST(Merge, AnAdapterOfAnotherBaseIsRefused) {
    const TempDir dir;
    const TinyModel model;
    write_tiny_model(dir / "base", model);
    const ModelFiles base = ModelFiles::open(dir / "base");
    const auto merge = [&](const PeftAdapter& adapter) {
        return message_of([&] { write_merged_model(base, adapter, "adapter", dir.path(), {}); });
    };
    TinyModel wider = model;
    wider.hidden_size = 32;
    const std::string shapes = merge(tiny_adapter(wider, {kUp}));
    EXPECT_NE(shapes.find("[3, 32]"), std::string::npos) << shapes;
    EXPECT_NE(shapes.find("[3, 24]"), std::string::npos) << shapes;
    const std::string names = merge(tiny_adapter(model, {"model.layers.7.mlp.up_proj.weight"}));
    EXPECT_NE(names.find("model.layers.7.mlp.up_proj"), std::string::npos) << names;
    PeftAdapter half = tiny_adapter(model, {kUp});
    half.tensors.pop_back();
    EXPECT_NE(merge(half).find("missing"), std::string::npos);
    EXPECT_NE(merge({}).find("no tensor"), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(dir / "config.json"));
}

TEST(Merge, AHeadThatContradictsTheConfigIsRefused) {
    const TempDir dir;
    TinyModel model;
    model.tied = false;
    write_tiny_model(dir / "base", model);
    TinyModel tied = model;
    tied.tied = true;
    std::ofstream(dir / "base/config.json") << tied.config().dump();
    const ModelFiles base = ModelFiles::open(dir / "base");
    const std::string message = message_of(
        [&] { write_merged_model(base, tiny_adapter(model, {kUp}), "adapter", dir.path(), {}); });
    EXPECT_NE(message.find("holds two different tensors"), std::string::npos) << message;
}

TEST(Merge, AWeightBeyondTheDtypeIsNamed) {
    const TempDir dir;
    const TinyModel model;
    write_tiny_model(dir / "base", model);
    PeftAdapter adapter = tiny_adapter(model, {kUp});
    for (AdapterTensor& tensor : adapter.tensors)
        for (float& value : tensor.values)
            value = 1000;
    std::filesystem::create_directory(dir / "out");
    const std::string message = message_of([&] {
        write_merged_model(ModelFiles::open(dir / "base"), adapter, "a", dir / "out",
                           {.dtype = DType::f16});
    });
    EXPECT_NE(message.find(kUp), std::string::npos) << message;
    EXPECT_NE(message.find("f16"), std::string::npos) << message;
}

}  // namespace
}  // namespace garam
