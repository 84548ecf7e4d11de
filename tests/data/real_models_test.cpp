// Rows through the tokenizers of real models. The ids expected come from the reference libraries
// (golden data; for SmolLM2 `tokenizers` and jinja2, fed with the GGUF's own keys).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "data/sample_reader.h"
#include "garam/core/json.h"
#include "garam/data/rows/labelled_rows.h"
#include "garam/data/samples/read_samples.h"
#include "garam/text/tokenizer.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam {
namespace {

using Ids = std::vector<std::int32_t>;
using testing::TempDir;

Ids ids_of(const Json& list) {
    Ids ids;
    for (const Json& id : list.array())
        ids.push_back(static_cast<std::int32_t>(id.integer()));
    return ids;
}

TEST(Stories260K, TextRowsHaveOneBosAndOneEos) {
    GARAM_REQUIRE_DATA("golden/stories260K-hf/tokenizer.json");
    GARAM_REQUIRE_DATA("golden/tokenizers/stories260K.jsonl");
    const auto tokenizer = load_tokenizer(testing::data_dir() / "golden/stories260K-hf");
    ASSERT_TRUE(tokenizer->eos_id());
    std::ifstream vectors(testing::data_dir() / "golden/tokenizers/stories260K.jsonl");
    const TempDir dir;
    EncodingSettings settings;
    settings.vocab_size = 512;
    int compared = 0;
    for (std::string line; std::getline(vectors, line);) {
        const Json vector = Json::parse(line, "stories260K.jsonl");
        if (vector.at("text").string().empty()) continue;
        Json row;
        row.set("text", vector.at("text"));
        const SampleSet set =
            read_samples(dir.write("row.jsonl", row.dump()), {}, settings, *tokenizer);
        Ids expected = ids_of(vector.at("ids_with_special"));
        expected.push_back(*tokenizer->eos_id());
        ASSERT_EQ(set.samples.size(), 1u);
        EXPECT_EQ(set.samples[0].ids, expected) << line;
        EXPECT_EQ(std::count(expected.begin(), expected.end(), *tokenizer->bos_id()), 1);
        ++compared;
    }
    EXPECT_GT(compared, 10);
}

TEST(Stories260K, CompletionsBeginBehindThePrompt) {
    GARAM_REQUIRE_DATA("golden/stories260K-hf/tokenizer.json");
    const auto tokenizer = load_tokenizer(testing::data_dir() / "golden/stories260K-hf");
    const TempDir dir;
    const auto file =
        dir.write("row.jsonl",
                  R"({"prompt": "Once upon a time, there", "completion": " was a little girl"})");
    const SampleSet set = read_samples(file, {}, {}, *tokenizer);
    // BOS Once upon a time , there | was a little girl EOS, cut as in the golden ids of the sentence.
    EXPECT_EQ(testing::target_text(set.samples.at(0), *tokenizer),
              tokenizer->decode(Ids{286, 261, 376, 298, 315, 421, 2}, false));
}

// The model that `./dev setup` brings.
std::filesystem::path smollm2() {
    std::error_code none;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(
             testing::source_dir() / ".venv" / "lib", none)) {
        if (entry.path().extension() == ".gguf") return entry.path();
    }
    return {};
}

class SmolLm2 : public ::testing::Test {
  protected:
    void SetUp() override {
        const auto model = smollm2();
        if (model.empty()) GTEST_SKIP() << "no SmolLM2 under .venv: run ./dev setup";
        tokenizer_ = load_tokenizer(model);
        settings_.vocab_size = 49152;
    }
    SampleSet read(const std::string& content) {
        return read_samples(dir_.write("rows.jsonl", content), config_, settings_, *tokenizer_);
    }

    TempDir dir_;
    std::unique_ptr<Tokenizer> tokenizer_;
    DataConfig config_;
    EncodingSettings settings_;
};

const Ids kChat = {1,     9690, 198,   2683, 359,   253,   5356, 5646, 11173, 3365, 3511, 308,
                   34519, 28,   7018,  411,  407,   19712, 8182, 2,    198,   1,    4093, 198,
                   4182,  451,  26804, 47,   18601, 239,   226,  182,  223,   239,  216,  33,
                   34,    35,   2,     198,  1,     520,   9531, 198,  4256,  2,    198};

TEST_F(SmolLm2, ChatRows) {
    const SampleSet set =
        read(R"({"messages": [{"role": "user", "content": "Is this spam? 안녕 123"}, )"
             R"({"role": "assistant", "content": "ham"}]})");
    ASSERT_EQ(set.samples.size(), 1u);
    EXPECT_EQ(set.samples[0].ids, kChat);
    Ids labels(kChat.size(), -100);
    labels[kChat.size() - 3] = 4256;  // ham
    labels[kChat.size() - 2] = 2;     // <|im_end|>
    EXPECT_EQ(set.samples[0].labels, labels);
}

TEST_F(SmolLm2, LabelledRowsAreScoredAsTheyAreTrained) {
    config_.instruction = "Is this spam?";
    config_.instruction += " {text}";
    const std::string rows =
        "{\"text\": \"안녕 123\", \"label\": \"ham\"}\n{\"text\": \"Win 1000 won\", \"label\": "
        "\"spam\"}\n";
    const SampleSet samples = read(rows);
    EXPECT_EQ(samples.samples.at(0).ids, kChat);
    const LabelledSet set = read_labelled_rows(DataPlaces::of((dir_ / "rows.jsonl").string()),
                                               config_, settings_, *tokenizer_);
    ASSERT_EQ(set.rows.size(), 2u);
    EXPECT_EQ(set.rows[0].prompt_ids, Ids(kChat.begin(), kChat.end() - 3));
    EXPECT_EQ(set.rows[0].candidates, (std::vector<Ids>{{4256, 2}, {2401, 332, 2}}));
    EXPECT_EQ(set.rows[0].label, 0);
    EXPECT_EQ(set.rows[1].label, 1);
}

TEST_F(SmolLm2, TextRowsEndWithTheTokenThatEndsATurn) {
    const SampleSet set = read(R"({"text": "Is this spam? Win 1000 won"})");
    EXPECT_EQ(set.samples.at(0).ids,
              (Ids{4182, 451, 26804, 47, 16641, 216, 33, 32, 32, 32, 3763, 2}));
}

}  // namespace
}  // namespace garam
