#include "garam/models/vocabulary_size.h"

#include <gtest/gtest.h>

#include "garam/core/error.h"
#include "garam/models/merge.h"
#include "models/moved_adapter.h"
#include "testing/temp_dir.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

using testing::DecoderHarness;
using testing::TempDir;
using testing::TinyModel;

const std::string kEmbedding = "model.embed_tokens.weight";
const std::string kHead = "lm_head.weight";
const std::string kPrefix = "base_model.model.";

TokenBatch batch() {
    TokenBatch tokens;
    const std::vector<std::int32_t> ids{3, 5, 7, 3, 9, 200, 17};
    tokens.append(ids, ids, 0);
    return tokens;
}

std::vector<float> values(const ModelFiles& files, const std::string& name) {
    const StoredTensor& stored = files.at(name);
    std::vector<float> result(static_cast<std::size_t>(stored.shape.elements()));
    read_tensor(stored, result.data());
    return result;
}

std::string refusal(ModelFiles files, const PeftAdapter& adapter) {
    try {
        fit_vocabulary(files, adapter, "A", 1000);
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

TEST(VocabularySize, OldTokensKeepTheirLogitsBitForBit) {
    for (const bool tied : {true, false}) {
        for (const char* dtype : {"f32", "bf16", "f16"}) {
            SCOPED_TRACE(std::string(dtype) + (tied ? " tied" : " untied"));
            const TempDir dir;
            TinyModel tiny;
            tiny.tied = tied;
            tiny.dtype = dtype;
            write_tiny_model(dir.path(), tiny);
            const ModelFiles base = ModelFiles::open(dir.path());
            ModelFiles larger = ModelFiles::open(dir.path());
            resize_token_embeddings(larger, 263);
            EXPECT_EQ(vocabulary_size(larger), 263);
            EXPECT_EQ(larger.at(kEmbedding).type, base.at(kEmbedding).type);
            for (const std::string& name : {kEmbedding, kHead}) {
                if (name == kHead && tied) continue;
                const std::vector<float> old = values(base, name);
                const std::vector<float> now = values(larger, name);
                ASSERT_EQ(now.size(), 263u * 24);
                EXPECT_TRUE(std::equal(old.begin(), old.end(), now.begin()));
                for (std::size_t i = 0; i < 24; ++i) {
                    double mean = 0;
                    for (std::size_t row = 0; row < 260; ++row)
                        mean += old[row * 24 + i] / 260.0;
                    for (std::size_t row = 260; row < 263; ++row)
                        EXPECT_NEAR(now[row * 24 + i], mean,
                                    1e-3 * std::abs(mean) + 1e-6 +
                                        (tiny.dtype == "bf16" ? 4e-3 * std::abs(mean) : 0));
                }
            }
            DecoderHarness first(base, {});
            DecoderHarness second(larger, {});
            const std::vector<float> old = first.logits(batch());
            const std::vector<float> now = second.logits(batch());
            const std::size_t tokens = old.size() / 260;
            ASSERT_EQ(now.size(), tokens * 263);
            for (std::size_t t = 0; t < tokens; ++t)
                EXPECT_TRUE(std::equal(old.begin() + static_cast<std::ptrdiff_t>(t * 260),
                                       old.begin() + static_cast<std::ptrdiff_t>((t + 1) * 260),
                                       now.begin() + static_cast<std::ptrdiff_t>(t * 263)));
        }
    }
}

// What PEFT leaves of a vocabulary that was resized, with trained tokens and without.
TEST(VocabularySize, WholeMatricesBesideAnAdapterAreTheBases) {
    for (const bool tied : {true, false}) {
        for (const std::int64_t rows : {262, 259}) {
            SCOPED_TRACE(std::to_string(rows) + (tied ? " tied" : " untied"));
            const TempDir dir, folder, out;
            TinyModel tiny;
            tiny.tied = tied;
            write_tiny_model(dir.path(), tiny);
            ModelFiles files = ModelFiles::open(dir.path());
            PeftAdapter adapter;
            {
                DecoderHarness run(files,
                                   {.trained = Decoder::Trained::adapter,
                                    .lora = LoraSettings{.r = 2, .target_modules = {"q_proj"}}});
                adapter.settings = *run.model.lora();
                for (const Parameter& p : run.model.parameters())
                    adapter.tensors.push_back({p.name, p.master.shape(), run.values(p.master)});
            }
            std::vector<AdapterTensor> saved = adapter.tensors;
            for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
                AdapterTensor tensor{kPrefix + name, {rows, 24}, {}};
                const bool head = saved.size() > adapter.tensors.size();
                for (std::int64_t i = 0; i < rows * 24; ++i)
                    tensor.values.push_back(static_cast<float>(i % 97) *
                                            (head && !tied ? 0.02f : 0.01f));
                saved.push_back(tensor);
            }
            testing::write_adapter({adapter.settings, saved, {}}, folder.path());
            const PeftAdapter read = read_peft_adapter(folder.path());
            ASSERT_EQ(read.embeddings.size(), 2u);
            EXPECT_EQ(read.tensors.size(), adapter.tensors.size());
            fit_vocabulary(files, read, "A", 0);
            EXPECT_EQ(vocabulary_size(files), rows);
            EXPECT_EQ(values(files, kEmbedding), saved[saved.size() - 2].values);
            if (!tied) {
                EXPECT_EQ(values(files, kHead), saved.back().values);
            }

            DecoderHarness run(files, {.lora = read.settings});
            run.model.load_adapter(read, "A");
            write_merged_model(files, read, "A", out.path(), {});
            const ModelFiles merged = ModelFiles::open(out.path());
            EXPECT_EQ(vocabulary_size(merged), rows);
            EXPECT_EQ(merged.find(kHead) == nullptr, tied);
            DecoderHarness alone(merged, {});
            const std::vector<float> a = run.logits(batch());
            const std::vector<float> b = alone.logits(batch());
            ASSERT_EQ(a.size(), b.size());
            for (std::size_t i = 0; i < a.size(); ++i)
                ASSERT_NEAR(a[i], b[i], 1e-4);
        }
    }
}

TEST(VocabularySize, FitsWhatAnAdapterHas) {
    const TempDir dir;
    testing::write_tiny_model(dir.path());
    const auto rows_with = [&](const PeftAdapter& adapter, std::int64_t tokenizer) {
        ModelFiles files = ModelFiles::open(dir.path());
        fit_vocabulary(files, adapter, "A", tokenizer);
        return vocabulary_size(files);
    };
    PeftAdapter adapter;
    EXPECT_EQ(rows_with(adapter, 300), 260);
    adapter.settings.trainable_token_indices = {259, 261};
    EXPECT_EQ(rows_with(adapter, 262), 262);
    EXPECT_EQ(rows_with(adapter, 260), 260);  // of another base: refused where it is loaded
    adapter.settings.trainable_token_indices.clear();
    adapter.tensors.push_back({kPrefix + kHead, {264, 24}, std::vector<float>(264 * 24)});
    EXPECT_EQ(rows_with(adapter, 0), 264);

    PeftAdapter wrong;
    wrong.embeddings.push_back({kPrefix + kEmbedding, {264, 16}, std::vector<float>(264 * 16)});
    EXPECT_NE(refusal(ModelFiles::open(dir.path()), wrong).find("hidden_size 24"),
              std::string::npos);
    wrong.embeddings = {{kPrefix + "x.wte.weight", {2, 24}, std::vector<float>(48)}};
    EXPECT_NE(refusal(ModelFiles::open(dir.path()), wrong).find("has no place"), std::string::npos);
    wrong.embeddings = {{kPrefix + kEmbedding, {1, 24}, std::vector<float>(24)},
                        {kPrefix + kHead, {1, 24}, std::vector<float>(24, 1)}};
    EXPECT_NE(refusal(ModelFiles::open(dir.path()), wrong).find("differ, but are one matrix"),
              std::string::npos);
}

}  // namespace
}  // namespace garam
