// What must hold for each family of the table beside its golden's numbers: the policies of recompute, decoding
// through a cache, merging, the names of adapters, and what its config keys mean.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "garam/models/merge.h"
#include "models/decoder_harness.h"
#include "testing/golden_batch.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam {
namespace {

using testing::DecoderHarness;
using testing::GoldenFile;

std::filesystem::path families() {
    return testing::data_dir() / "golden" / "families";
}

using Case = std::tuple<std::string, DeviceProfile>;

class DecoderFamilies : public ::testing::TestWithParam<Case> {
  protected:
    DecoderFamilies()
        : folder_(families() / std::get<0>(GetParam())),
          golden_(folder_ / "golden.safetensors"),
          files_(ModelFiles::open(folder_)) {
        adapter_.settings = {.r = 4, .lora_alpha = 8, .target_modules = {"all-linear"}};
        for (const auto& [name, tensor] : golden_.tensors()) {
            if (name.starts_with("base_model.model."))
                adapter_.tensors.push_back({name, tensor.shape, tensor.values});
        }
    }
    static const DeviceProfile& profile() { return std::get<1>(GetParam()); }
    std::unique_ptr<DecoderHarness> make(Decoder::Trained trained, DType compute = DType::f32,
                                         double dropout = 0) const {
        Decoder::Options options;
        options.trained = trained;
        options.compute = compute;
        if (trained != Decoder::Trained::all_weights) {
            options.lora = adapter_.settings;
            options.lora->lora_dropout = dropout;
        }
        auto run = std::make_unique<DecoderHarness>(files_, options, profile());
        if (options.lora) run->model.load_adapter(adapter_, "golden");
        return run;
    }

    std::filesystem::path folder_;
    GoldenFile golden_;
    ModelFiles files_;
    PeftAdapter adapter_;
};

std::string test_name(const ::testing::TestParamInfo<Case>& info) {
    std::string name = std::get<0>(info.param);
    for (char& c : name)
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    const DeviceProfile& profile = std::get<1>(info.param);
    return profile.is_cuda() ? name + "_" + testing::card_name(profile) : name;
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DecoderFamilies);
INSTANTIATE_TEST_SUITE_P(Cpu, DecoderFamilies,
                         ::testing::Combine(::testing::ValuesIn(testing::folders_in(families())),
                                            ::testing::Values(detect_cpu_profile())),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Cuda, DecoderFamilies,
                         ::testing::Combine(::testing::ValuesIn(testing::folders_in(families())),
                                            ::testing::ValuesIn(testing::card_profiles())),
                         test_name);

TEST_P(DecoderFamilies, RecomputeGivesTheSameBits) {
    for (const auto trained : {Decoder::Trained::adapter, Decoder::Trained::all_weights}) {
        for (const DType compute : {DType::f32, DType::bf16}) {
            const auto run = make(trained, compute, 0.1);
            const float loss = run->gradients({golden_.batch()});
            const std::vector<float> want = run->all_gradients();
            for (const Recompute recompute :
                 {Recompute::norms_and_activation, Recompute::gate_up, Recompute::block}) {
                EXPECT_EQ(run->gradients({golden_.batch()}, {.recompute = recompute}), loss);
                EXPECT_EQ(run->all_gradients(), want) << name_of(recompute);
            }
            // Tiles of tokens, too, where all are in one; else but for the order of sums.
            for (const std::int64_t tile : {std::int64_t{1} << 20, std::int64_t{5}}) {
                const TrainingPass tiled{.recompute = Recompute::block, .tile = tile};
                const double order = compute == DType::bf16 ? 2e-2 : 1e-4;
                EXPECT_NEAR(run->gradients({golden_.batch()}, tiled), loss,
                            tile == 5 && profile().is_cuda() ? order * loss : 0);
                if (tile == 5) {
                    EXPECT_LE(testing::relative_error(run->all_gradients().data(), want), order);
                } else {
                    EXPECT_EQ(run->all_gradients(), want);
                }
            }
        }
    }
}

// In pieces through the cache, of one token and of several, as in one pass. On the processor to the bit.
TEST_P(DecoderFamilies, DecodingIsTheForward) {
    for (const DType compute : {DType::f32, DType::bf16}) {
        const auto run = make(Decoder::Trained::nothing, compute);
        const TokenBatch batch = golden_.batch();
        const std::vector<float> whole = run->logits(batch);
        const auto length = static_cast<std::size_t>(batch.cu_seqlens[1]);
        const auto vocab = static_cast<std::size_t>(run->model.config().vocab_size);
        KvCache cache = run->model.make_cache(static_cast<std::int64_t>(length));
        std::vector<float> logits;
        for (std::size_t t = 0; t < length;) {
            const std::size_t piece = std::min<std::size_t>(t < 4 || t > 8 ? 1 : 3, length - t);
            run->model.decode(run->stream, cache, {batch.ids.data() + t, piece}, logits);
            t += piece;
            const std::vector<float> want(
                whole.begin() + static_cast<std::ptrdiff_t>((t - 1) * vocab),
                whole.begin() + static_cast<std::ptrdiff_t>(t * vocab));
            if (!profile().is_cuda()) {
                EXPECT_EQ(logits, want) << "after " << t;
            } else {
                EXPECT_LE(testing::relative_error(logits.data(), want),
                          compute == DType::f32 ? 1e-5 : 5e-2)
                    << "after " << t;
            }
        }
    }
}

// bf16 is near fp32: no op of a family's rounds more than it must.
TEST_P(DecoderFamilies, LossInBf16IsNear) {
    const auto targets = static_cast<double>(golden_.at("num_valid_tokens").integers.at(0));
    const auto run = make(Decoder::Trained::all_weights, DType::bf16);
    const double loss = static_cast<double>(run->gradients({golden_.batch()})) / targets;
    EXPECT_NEAR(loss, static_cast<double>(golden_.scalar("loss")), 0.02 * loss);
}

TEST_P(DecoderFamilies, MergedModelIsTheAdaptedOne) {
    const testing::TempDir out;
    MergeOptions options;
    options.dtype = DType::f32;
    write_merged_model(files_, adapter_, "golden", out.path(), options);
    const ModelFiles merged = ModelFiles::open(out.path());
    DecoderHarness run(merged, {}, profile());
    const std::vector<float> got = run.logits(golden_.batch());
    const auto& want = golden_.at("lora.logits");
    const auto vocab = static_cast<std::size_t>(want.shape.back());
    double worst = 0;
    std::size_t next = 0;
    for (const std::int64_t place : golden_.places()) {
        for (std::size_t v = 0; v < vocab; ++v, ++next) {
            const float wanted = want.values[static_cast<std::size_t>(place) * vocab + v];
            worst = std::max(worst, static_cast<double>(std::fabs(got[next] - wanted)));
        }
    }
    EXPECT_LE(worst, 3e-4);
}

// A card's forms of the same, packed and recorded, fit together in shape, and give their memory back: dry, as
// a plan runs them.
TEST_P(DecoderFamilies, ACardsStepAndDecodingArePlanned) {
    DeviceProfile card;
    card.name = "a card";
    card.kind = DeviceKind::cuda;
    card.fast_bf16 = true;
    card.compute_capability = 90;
    card.multiprocessors = 132;
    card.shared_bytes = 227 << 10;
    card.memory_bytes = card.free_bytes = std::int64_t{80} << 30;
    const auto device = make_dry_device(card);
    for (const auto trained : {Decoder::Trained::adapter, Decoder::Trained::all_weights}) {
        for (const DType compute : {DType::f32, DType::bf16}) {
            Decoder::Options options;
            options.trained = trained;
            options.compute = compute;
            if (trained == Decoder::Trained::adapter) {
                options.lora = adapter_.settings;
                options.lora->lora_dropout = 0.1;
            }
            Arena arena(*device, std::int64_t{8} << 30);
            Meter meter;
            Stream stream(*device, arena, meter);
            Decoder model(*device, files_, options);
            const OwnedTensor loss_sum(*device, DType::f32, {1}, Purpose::scratch);
            for (const Recompute recompute : {Recompute::nothing, Recompute::norms_and_activation,
                                              Recompute::gate_up, Recompute::block}) {
                model.train_step(stream, golden_.batch(), {.recompute = recompute},
                                 loss_sum.tensor);
                EXPECT_EQ(arena.used(), 0) << name_of(recompute);
            }
            model.train_step(stream, golden_.batch(), {.recompute = Recompute::block, .tile = 5},
                             loss_sum.tensor);
            EXPECT_EQ(arena.used(), 0);
            KvCache cache = model.make_cache(32);
            std::vector<float> logits;
            for (const std::size_t tokens : {9u, 1u, 1u})
                model.decode(stream, cache, std::vector<std::int32_t>(tokens), logits);
            EXPECT_EQ(arena.used(), 0);
        }
    }
}

// PEFT over Transformers' own class gives other names than PEFT over the family's remote code.
TEST_P(DecoderFamilies, AdaptersUnderTransformersNamesAreTheSame) {
    const DecoderConfig config = DecoderConfig::from_json(files_.config(), "config.json");
    PeftAdapter renamed = adapter_;
    std::set<std::string> targets;
    bool differs = false;
    for (AdapterTensor& tensor : renamed.tensors) {
        const std::size_t begin = std::string("base_model.model.").size();
        const std::size_t end = tensor.name.rfind(".lora_");
        const std::string path =
            common_module(*config.family, tensor.name.substr(begin, end - begin));
        differs |= tensor.name.compare(begin, end - begin, path) != 0;
        tensor.name = "base_model.model." + path + tensor.name.substr(end);
        targets.insert(path.substr(path.rfind('.') + 1));
    }
    EXPECT_EQ(differs, config.family->architecture == "ExaoneForCausalLM");
    Decoder::Options options;
    options.lora = adapter_.settings;
    options.lora->target_modules.assign(targets.begin(), targets.end());
    DecoderHarness run(files_, options, profile());
    run.model.load_adapter(renamed, "renamed");
    const auto own = make(Decoder::Trained::nothing);
    EXPECT_EQ(run.logits(golden_.batch()), own->logits(golden_.batch()));
    EXPECT_EQ(run.model.lora()->target_modules, own->model.lora()->target_modules);

    const testing::TempDir out;
    write_merged_model(files_, renamed, "renamed", out.path(), {});
}

// A config with a family's defaults and a few keys.
DecoderConfig config_of(const std::string& type, const std::string& keys) {
    Json config = Json::parse(R"({"vocab_size": 100, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 4, "num_attention_heads": 4, "max_position_embeddings": 64})",
                              "test");
    config.set("model_type", type);
    const Json own = Json::parse("{" + keys + "}", "keys");
    for (const auto& [key, value] : own.object())
        config.set(key, value);
    return DecoderConfig::from_json(config, "config.json");
}
std::vector<std::int64_t> windows_of(const DecoderConfig& config) {
    std::vector<std::int64_t> windows;
    for (const DecoderConfig::Layer& layer : config.layers)
        windows.push_back(layer.window);
    return windows;
}
std::string ropes_of(const DecoderConfig& config) {
    std::string ropes;
    for (const DecoderConfig::Layer& layer : config.layers)
        ropes += "nml"[static_cast<int>(layer.rope)];
    return ropes;
}
using Windows = std::vector<std::int64_t>;

TEST(DecoderFamilyConfigs, Windows) {
    EXPECT_EQ(windows_of(config_of("llama", R"("sliding_window": 8)")), Windows(4, 0));
    EXPECT_EQ(windows_of(config_of("mistral", "")), Windows(4, 4096));
    EXPECT_EQ(windows_of(config_of("mistral", R"("sliding_window": null)")), Windows(4, 0));
    EXPECT_EQ(windows_of(config_of("qwen2", R"("sliding_window": 8)")), Windows(4, 0));
    const std::string used = R"("sliding_window": 8, "use_sliding_window": true)";
    EXPECT_EQ(windows_of(config_of("qwen2", used + R"(, "max_window_layers": 3)")),
              (Windows{0, 0, 0, 8}));
    EXPECT_EQ(windows_of(config_of("qwen3", used)), Windows(4, 0));  // from layer 28 on
    EXPECT_EQ(windows_of(config_of("gemma2", R"("sliding_window": 8)")), (Windows{8, 0, 8, 0}));
    EXPECT_EQ(windows_of(config_of("gemma3_text", R"("sliding_window_pattern": 2)")),
              (Windows{4096, 0, 4096, 0}));
    EXPECT_EQ(windows_of(config_of("phi3", "")), Windows(4, 0));
    EXPECT_EQ(windows_of(config_of("exaone4", R"("sliding_window_pattern": "LG")")),
              (Windows{4096, 0, 4096, 0}));
    EXPECT_EQ(windows_of(config_of("exaone4", R"("sliding_window": 8)")), (Windows{8, 8, 8, 0}));
    EXPECT_EQ(windows_of(config_of("gemma2", R"("sliding_window": 8, "layer_types": [
        "full_attention", "full_attention", "sliding_attention", "full_attention"])")),
              (Windows{0, 0, 8, 0}));
    EXPECT_THROW(config_of("gemma2", R"("layer_types": ["full_attention"])"), Error);
    EXPECT_THROW(config_of("gemma2", R"("layer_types": ["chunked_attention",
        "full_attention", "full_attention", "full_attention"])"),
                 Error);
}

TEST(DecoderFamilyConfigs, LayersWithoutRope) {
    EXPECT_EQ(ropes_of(config_of("smollm3", "")), "mmmn");
    EXPECT_EQ(ropes_of(config_of("smollm3", R"("no_rope_layer_interval": 2)")), "mnmn");
    EXPECT_EQ(windows_of(config_of("smollm3", R"("use_sliding_window": true,
        "sliding_window": 8)")),
              (Windows{0, 0, 0, 8}));
    EXPECT_EQ(ropes_of(config_of("exaone4", R"("sliding_window": 8)")), "mmmn");
    EXPECT_EQ(ropes_of(config_of("exaone4", R"("sliding_window": null)")), "mmmm");
    EXPECT_EQ(ropes_of(config_of("gemma3_text", R"("sliding_window_pattern": 4)")), "lllm");
}

TEST(DecoderFamilyConfigs, DefaultsAreTransformers) {
    EXPECT_EQ(config_of("qwen3", "").head_dim, 128);
    EXPECT_EQ(config_of("gemma2", "").head_dim, 256);
    EXPECT_EQ(config_of("gemma2", "").attention_scale, 1.0 / 16);
    EXPECT_EQ(config_of("gemma3_text", "").rope.theta, 1000000);
    EXPECT_EQ(config_of("smollm3", "").rope.theta, 2000000);
    EXPECT_TRUE(config_of("qwen2", "").qkv_bias);
    EXPECT_FALSE(config_of("qwen2", "").o_bias);
    const std::set<std::string_view> tied = {"exaone", "gemma2", "gemma3_text", "smollm3"};
    for (const DecoderFamily& family : decoder_families()) {
        const std::string_view type = family.model_types[0];
        const auto stated = config_of(std::string(type), R"("num_layers": 4)").tie_word_embeddings;
        EXPECT_EQ(stated.value_or(false), tied.contains(type)) << type;
    }
    for (const char* part : {"0", "-1", "1e300", "0.1", "0.4"})
        EXPECT_THROW(config_of("phi3", std::string(R"("partial_rotary_factor": )") + part), Error);
}

// A row says nothing that its tests do not show, and no two rows the same model.
TEST(DecoderFamilyTable, EachFamilyHasAGolden) {
    GARAM_REQUIRE_DATA("golden/families");
    std::set<std::string> types;
    for (const std::string& name : testing::folders_in(families())) {
        const Json config = Json::parse_file(families() / name / "config.json");
        types.insert(config.at("model_type").string());
        EXPECT_EQ(config.at("architectures").array().at(0).string(),
                  family_of(config, name).architecture);
    }
    std::set<std::string_view> seen;
    for (const DecoderFamily& family : decoder_families()) {
        EXPECT_TRUE(types.contains(std::string(family.model_types[0]))) << family.name;
        for (const std::string_view type : family.model_types)
            EXPECT_TRUE(type.empty() || seen.insert(type).second) << type;
    }
}

}  // namespace
}  // namespace garam
