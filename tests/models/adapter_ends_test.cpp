// Adapters and whole copies of the token embedding and the head, tied or not, and of other modules.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "garam/core/error.h"
#include "garam/io/peft_adapter.h"
#include "garam/models/four_bit_base.h"
#include "garam/models/gguf_export.h"
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

const std::string kPrefix = "base_model.model.";
const std::string kEmbedding = "model.embed_tokens.weight";
const std::string kHead = "lm_head.weight";

// Ids that come up several times.
TokenBatch batch(std::int64_t sample = 0) {
    TokenBatch tokens;
    const std::vector<std::int32_t> ids{3, 5, 7, 3, 9, 3, 200, 17};
    tokens.append(ids, ids, sample);
    return tokens;
}

struct Setting {
    std::string name;
    LoraSettings lora;
    bool unties;  // a tied base
};

std::vector<Setting> settings() {
    return {
        {"both",
         {.r = 2, .lora_alpha = 3, .target_modules = {"embed_tokens", "lm_head", "q_proj"}},
         true},
        {"embedding", {.r = 3, .target_modules = {"embed_tokens"}}, true},
        {"head", {.r = 2, .target_modules = {"lm_head", "down_proj"}}, true},
        {"pattern", {.r = 2, .target_modules = {".*(embed_tokens|lm_head|up_proj)"}}, true},
        {"all_linear", {.r = 2, .target_modules = {"all-linear"}}, false},
        {"save_both",
         {.r = 2, .target_modules = {"q_proj"}, .modules_to_save = {"embed_tokens", "lm_head"}},
         true},
        {"save_embedding",
         {.r = 2, .target_modules = {"q_proj"}, .modules_to_save = {"embed_tokens"}},
         true},
        {"save_head", {.r = 2, .target_modules = {"k_proj"}, .modules_to_save = {"lm_head"}}, true},
        {"save_others",
         {.r = 2,
          .target_modules = {"q_proj", "lm_head"},
          .modules_to_save = {"0.self_attn.v_proj", "norm", "layers.1.mlp"}},
         true},
        {"tokens",
         {.r = 2, .target_modules = {"q_proj"}, .trainable_token_indices = {9, 3, 4, 200}},
         false},
        {"tokens_and_head",
         {.r = 2, .target_modules = {"q_proj", "lm_head"}, .trainable_token_indices = {7, 3}},
         true},
    };
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want,
                 float tolerance = 3e-5f) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want[i], tolerance * (1 + std::abs(want[i]))) << i;
}

class AdapterEnds : public ::testing::TestWithParam<DeviceProfile> {
  protected:
    ModelFiles& base(bool tied) {
        testing::TinyModel tiny;
        tiny.tied = tied;
        const auto folder = dir_ / (tied ? "tied" : "untied");
        testing::write_tiny_model(folder, tiny);
        files_ = std::make_unique<ModelFiles>(ModelFiles::open(folder));
        return *files_;
    }
    static Decoder::Options trained(const LoraSettings& lora, DType compute = DType::f32) {
        Decoder::Options options;
        options.compute = compute;
        options.trained = Decoder::Trained::adapter;
        options.lora = lora;
        return options;
    }

    TempDir dir_;
    std::unique_ptr<ModelFiles> files_;
};
GARAM_FOR_CPU_AND_CARDS(AdapterEnds);

// CASES 15: from the model to its folder and back, and merged: where a tied base's two weights part, they are
// untied, and logits stay what they were.
TEST_P(AdapterEnds, ReadAndMergedComputeTheSame) {
    BaseQuantization nf4;
    nf4.format = QuantFormat::nf4;
    for (const int kind : {0, 1, 2, 3}) {
        const bool tied = kind % 2 == 0;
        const bool in_four_bits = kind >= 2;
        for (const Setting& setting : settings()) {
            SCOPED_TRACE(setting.name + (tied ? ", tied" : "") + (in_four_bits ? ", nf4" : ""));
            ModelFiles& files = base(tied);
            Decoder::Options training = trained(setting.lora);
            Decoder::Options applied;
            if (in_four_bits) training.quantize = applied.quantize = nf4;
            DecoderHarness run(files, training, GetParam());
            const PeftAdapter adapter = moved_adapter(run);
            const std::vector<float> want = run.logits(batch());

            const auto folder = dir_ / (setting.name + std::to_string(kind));
            write_adapter(adapter, folder);
            const PeftAdapter read = read_peft_adapter(folder);
            EXPECT_EQ(read.tensors.size(), adapter.tensors.size());
            applied.lora = read.settings;
            DecoderHarness again(files, applied, GetParam());
            again.model.load_adapter(read, "read");
            expect_near(again.logits(batch()), want);
            if (GetParam().is_cuda()) continue;  // merging is the host's
            EXPECT_EQ(again.logits(batch()), want);

            if (in_four_bits) quantise_linears(files, nf4);
            const auto out = folder / "merged";
            std::filesystem::create_directory(out);
            MergeOptions merging;
            merging.dtype = DType::f32;  // not the 16 bits that are the rule for a base in 4
            write_merged_model(files, read, "read", out, merging);
            EXPECT_EQ(Json::parse_file(out / "config.json").at("tie_word_embeddings").boolean(),
                      tied && !setting.unties);
            const ModelFiles merged_files = ModelFiles::open(out);
            EXPECT_EQ(merged_files.find(kHead) != nullptr, !tied || setting.unties);
            DecoderHarness merged(merged_files, {});
            expect_near(merged.logits(batch()), want);

            GgufExportOptions options;
            options.type = StoredType::f32;
            write_gguf_model(files, &read, "read", folder / "m.gguf", options);
            const ModelFiles exported_files = ModelFiles::open(folder / "m.gguf");
            EXPECT_EQ(exported_files.find(kHead) != nullptr, !tied || setting.unties);
            DecoderHarness exported(exported_files, {});
            expect_near(exported.logits(batch()), want);
        }
    }
}

// A new adapter changes nothing: what is saved has the gradients of full fine-tuning, of which a tied pair's
// is the sum of both uses.
TEST_P(AdapterEnds, GradientsOfSavedModulesAreThoseOfTheBase) {
    for (const bool tied : {true, false}) {
        const ModelFiles& files = base(tied);
        Decoder::Options options;
        options.trained = Decoder::Trained::all_weights;
        DecoderHarness full(files, options, GetParam());
        full.gradients({batch()});
        std::map<std::string, std::vector<float>> want;
        for (const Parameter& parameter : full.model.parameters())
            want[parameter.name] = full.values(parameter.gradient);
        for (const Setting& setting : settings()) {
            SCOPED_TRACE(setting.name + (tied ? ", tied" : ""));
            if (setting.lora.modules_to_save.empty()) continue;
            DecoderHarness run(files, trained(setting.lora), GetParam());
            run.gradients({batch()});
            std::map<std::string, std::vector<float>> got;
            for (const Parameter& parameter : run.model.parameters()) {
                const std::string name = parameter.name.substr(kPrefix.size());
                if (name.find(".lora_") == std::string::npos)
                    got[name] = run.values(parameter.gradient);
            }
            if (tied && got.contains(kEmbedding) != got.contains(kHead)) continue;
            if (tied && got.contains(kHead)) {
                for (std::size_t i = 0; i < got[kHead].size(); ++i)
                    got[kEmbedding][i] += got[kHead][i];
                got.erase(kHead);
            }
            EXPECT_FALSE(got.empty());
            for (const auto& [name, gradient] : got)
                expect_near(gradient, want.at(name));
        }
    }
}

// Dropout's masks go by sample and position, wherever the head picks its rows: the cut into micro-batches does
// not show.
TEST_P(AdapterEnds, TheCutDoesNotShow) {
    const ModelFiles& files = base(true);
    const LoraSettings lora{
        .r = 2, .lora_dropout = 0.3, .target_modules = {"embed_tokens", "lm_head", "o_proj"}};
    DecoderHarness run(files, trained(lora), GetParam());
    moved_adapter(run);
    TokenBatch joined = batch(4);
    const std::vector<std::int32_t> ids{3, 5, 7, 3, 9, 3, 200, 17};
    std::vector<std::int32_t> labels = ids;
    labels[2] = labels[5] = kIgnore;
    joined.append(ids, labels, 9);
    TokenBatch second;
    second.append(ids, labels, 9);
    const float loss = run.gradients({joined});
    const std::vector<float> want = run.all_gradients();
    EXPECT_NEAR(run.gradients({batch(4), second}), loss, 1e-5f * loss);
    expect_near(run.all_gradients(), want);
}

// Token by token, which a card records, is what one pass gives.
TEST_P(AdapterEnds, DecodingEqualsOnePass) {
    for (const DType compute : {DType::f32, DType::bf16}) {
        const ModelFiles& files = base(true);
        DecoderHarness run(files, trained(settings().front().lora, compute), GetParam());
        moved_adapter(run);
        const TokenBatch tokens = batch();
        const std::vector<float> whole = run.logits(tokens);
        KvCache cache = run.model.make_cache(16);
        std::vector<float> got;
        for (std::size_t t = 0; t < tokens.ids.size(); ++t) {
            run.model.decode(run.stream, cache, std::span(tokens.ids).subspan(t, 1), got);
            const std::vector<float> want(
                whole.begin() + static_cast<std::ptrdiff_t>(t * got.size()),
                whole.begin() + static_cast<std::ptrdiff_t>((t + 1) * got.size()));
            if (!GetParam().is_cuda()) {
                EXPECT_EQ(got, want) << t;
            }
            expect_near(got, want, compute == DType::f32 ? 3e-5f : 5e-2f);
        }
    }
}

// Their rows of the gradient of full fine-tuning, of both uses where these are tied.
TEST_P(AdapterEnds, GradientsOfTokensAreRowsOfTheBase) {
    for (const bool tied : {true, false}) {
        const ModelFiles& files = base(tied);
        Decoder::Options options;
        options.trained = Decoder::Trained::all_weights;
        DecoderHarness full(files, options, GetParam());
        full.gradients({batch()});
        LoraSettings lora{.r = 2, .target_modules = {"q_proj"}};
        lora.trainable_token_indices = {9, 3, 4, 200};  // 4 does not come up
        DecoderHarness run(files, trained(lora), GetParam());
        run.gradients({batch()});
        const auto named = [](DecoderHarness& of, const std::string& name) {
            for (const Parameter& parameter : of.model.parameters())
                if (parameter.name == name) return of.values(parameter.gradient);
            return std::vector<float>();
        };
        const std::vector<float> all = named(full, kEmbedding);
        std::vector<float> want;
        for (const std::int64_t token : lora.trainable_token_indices)
            want.insert(want.end(), all.begin() + token * 24, all.begin() + (token + 1) * 24);
        expect_near(named(run, kPrefix + "model.embed_tokens.token_adapter.trainable_tokens_delta"),
                    want);
    }
}

TEST(AdapterEndsErrors, NameWhatIsWrong) {
    const TempDir dir;
    testing::write_tiny_model(dir / "base", {});
    const ModelFiles files = ModelFiles::open(dir / "base");
    const auto refusal = [&](const LoraSettings& lora) -> std::string {
        Decoder::Options options;
        options.trained = Decoder::Trained::adapter;
        options.lora = lora;
        try {
            DecoderHarness run(files, options);
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    EXPECT_NE(refusal({.target_modules = {"lm_head"}, .modules_to_save = {"lm_head"}})
                  .find("both name lm_head"),
              std::string::npos);
    EXPECT_NE(refusal({.target_modules = {"q_proj"}, .modules_to_save = {"wte"}})
                  .find("lora.modules_to_save: \"wte\" matches no module"),
              std::string::npos);
    EXPECT_NE(refusal({.target_modules = {"q_proj"}, .trainable_token_indices = {260}})
                  .find("260 is outside the model's vocabulary of 260"),
              std::string::npos);
    EXPECT_NE(refusal({.target_modules = {"q_proj"}, .trainable_token_indices = {3, 3}})
                  .find("3 comes twice"),
              std::string::npos);
    EXPECT_NE(refusal({.target_modules = {"embed_tokens"}, .trainable_token_indices = {3}})
                  .find("both train model.embed_tokens"),
              std::string::npos);
    EXPECT_NE(refusal({.target_modules = {"wte"}}).find("embed_tokens"), std::string::npos);
}

}  // namespace
}  // namespace garam
