// Tokenizers of the structures of published families, small ones that `tokenizers` and `sentencepiece` trained, beside
// what those packages make of texts (tests/text/files/make_files.py).
#include <gtest/gtest.h>

#include "garam/core/json.h"
#include "garam/text/sentencepiece_model.h"
#include "garam/text/tokenizer.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"
#include "tokenizer_data.h"

namespace garam {
namespace {

using testing::read_file;
using testing::TempDir;
using Ids = std::vector<std::int32_t>;

std::filesystem::path files() {
    return testing::source_dir() / "tests" / "text" / "files";
}

Ids ids_of(const Json& list) {
    Ids ids;
    for (const Json& id : list.array())
        ids.push_back(static_cast<std::int32_t>(id.integer()));
    return ids;
}

void expect_covers(const Encoding& encoding, const std::string& text) {
    ASSERT_EQ(encoding.ids.size(), encoding.spans.size());
    std::size_t last = 0;
    for (const ByteSpan& span : encoding.spans) {
        EXPECT_LE(last, span.begin);
        EXPECT_LE(span.begin, span.end);
        EXPECT_LE(span.end, text.size());
        last = span.begin;
    }
}

std::string streamed(const Tokenizer& tokenizer, const Ids& ids) {
    StreamDecoder stream(tokenizer, false);
    std::string text;
    for (const std::int32_t id : ids)
        text += stream.push(id);
    return text + stream.flush();
}

void expect_vectors(const Tokenizer& tokenizer, const Json& vectors) {
    for (const Json& row : vectors.array()) {
        const std::string& text = row.at("text").string();
        SCOPED_TRACE(text);
        const Ids ids = ids_of(row.at("ids"));
        const Encoding encoding = tokenizer.encode(text, {});
        EXPECT_EQ(encoding.ids, ids);
        EXPECT_EQ(tokenizer.encode_ids(text, {}), ids);
        expect_covers(encoding, text);
        if (const Json* with = row.find("with_special")) {
            EXPECT_EQ(tokenizer.encode_ids(text, {.add_special_tokens = true}), ids_of(*with));
        }
        if (row.at("decoded").is_null()) continue;
        EXPECT_EQ(tokenizer.decode(ids, false), row.at("decoded").string());
        EXPECT_EQ(streamed(tokenizer, ids), row.at("decoded").string());
    }
}

std::vector<std::string> stems(const std::string& extension) {
    std::vector<std::string> names;
    for (const std::string& file : testing::files_in(files(), extension)) {
        const std::string name = file.substr(0, file.size() - extension.size());
        if (!name.ends_with(".vectors")) names.push_back(name);
    }
    return names;
}

class TokenizerStructures : public ::testing::TestWithParam<std::string> {};
class SentencePieceFiles : public ::testing::TestWithParam<std::string> {};

TEST_P(TokenizerStructures, IdsAndTextsAreThePackages) {
    const Json file = Json::parse_file(files() / (GetParam() + ".json"));
    const TempDir folder;
    folder.write("tokenizer.json", file.at("tokenizer").dump());
    const auto tokenizer = load_tokenizer(folder.path());
    EXPECT_GE(file.at("vectors").array().size(), 30u);
    expect_vectors(*tokenizer, file.at("vectors"));
}

TEST_P(SentencePieceFiles, IdsAndTextsAreThePackages) {
    const Json file = Json::parse_file(files() / (GetParam() + ".vectors.json"));
    const TempDir folder;
    folder.write("tokenizer.model", read_file(files() / (GetParam() + ".model")));
    folder.write("tokenizer_config.json", file.at("config").dump());
    const auto tokenizer = load_tokenizer(folder.path());
    EXPECT_GE(file.at("vectors").array().size(), 30u);
    expect_vectors(*tokenizer, file.at("vectors"));

    // Saved as the tokenizer.json that means the same.
    const TempDir saved;
    tokenizer->save(saved.path());
    EXPECT_FALSE(std::filesystem::exists(saved / "tokenizer.model"));
    const auto again = load_tokenizer(saved.path());
    expect_vectors(*again, file.at("vectors"));
    EXPECT_EQ(again->vocab_size(), tokenizer->vocab_size());
    EXPECT_EQ(again->bos_id(), tokenizer->bos_id());
    EXPECT_EQ(again->eos_id(), tokenizer->eos_id());
    EXPECT_EQ(again->adds_bos(), tokenizer->adds_bos());
    EXPECT_EQ(again->encode_ids("a b", {.add_special_tokens = true}),
              tokenizer->encode_ids("a b", {.add_special_tokens = true}));
}

INSTANTIATE_TEST_SUITE_P(Small, TokenizerStructures, ::testing::ValuesIn(stems(".json")),
                         testing::case_name);
INSTANTIATE_TEST_SUITE_P(Small, SentencePieceFiles, ::testing::ValuesIn(stems(".model")),
                         testing::case_name);

TEST(SentencePieceTokenizer, FamiliesPutTheirTokensAround) {
    const auto around = [](const std::string& name, const std::string& config) {
        const TempDir folder;
        folder.write("tokenizer.model", read_file(files() / (name + ".model")));
        if (!config.empty()) folder.write("tokenizer_config.json", config);
        const auto tokenizer = load_tokenizer(folder.path());
        std::string shown;
        for (const std::int32_t id : tokenizer->encode_ids("", {.add_special_tokens = true}))
            shown += tokenizer->token_of(id);
        return shown;
    };
    EXPECT_EQ(around("llama-bpe", R"({"tokenizer_class": "LlamaTokenizer"})"), "<s>");
    EXPECT_EQ(around("llama-bpe", R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": false,
                                      "add_eos_token": true})"),
              "</s>");
    EXPECT_EQ(around("llama-bpe", ""), "");
    EXPECT_EQ(around("gemma-bpe", R"({"tokenizer_class": "GemmaTokenizer"})"), "<s>");
    EXPECT_EQ(around("t5-unigram", R"({"tokenizer_class": "T5Tokenizer"})"), "</s>");
}

TEST(SentencePieceTokenizer, SentinelsOfT5FollowItsPieces) {
    const TempDir folder;
    folder.write("spiece.model", read_file(files() / "t5-unigram.model"));
    folder.write("tokenizer_config.json", R"({"tokenizer_class": "T5Tokenizer", "extra_ids": 3})");
    const auto tokenizer = load_tokenizer(folder.path());
    const auto last = static_cast<std::int32_t>(tokenizer->vocab_size()) - 1;
    EXPECT_EQ(tokenizer->id_of("<extra_id_0>"), last);
    EXPECT_EQ(tokenizer->id_of("<extra_id_2>"), last - 2);
    EXPECT_EQ(tokenizer->encode_ids("<extra_id_1>", {}), Ids{last - 1});
}

TEST(SentencePieceTokenizer, ManySentinelsAreNotQuadratic) {
    const TempDir folder;
    folder.write("spiece.model", read_file(files() / "t5-unigram.model"));
    folder.write("tokenizer_config.json",
                 R"({"tokenizer_class": "T5Tokenizer", "extra_ids": 10000})");
    const std::clock_t begun = std::clock();
    const auto tokenizer = load_tokenizer(folder.path());
    EXPECT_TRUE(tokenizer->id_of("<extra_id_9999>").has_value());
    // A tenth of it where nothing is quadratic; ten times as much with the sanitizers.
    EXPECT_LT(static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC, 1.0);
}

TEST(SentencePieceTokenizer, ConfigurationsRenamePieces) {
    const SentencePieceModel model = read_sentencepiece_model(files() / "llama-bpe.model");
    const auto id = static_cast<std::int32_t>(model.pieces.size()) - 1;
    const TempDir folder;
    folder.write("tokenizer.model", read_file(files() / "llama-bpe.model"));
    folder.write(
        "tokenizer_config.json",
        Json(Json::Object{{"added_tokens_decoder",
                           Json::Object{{std::to_string(id), Json::Object{{"content", "<|new|>"},
                                                                          {"special", true}}}}}})
            .dump());
    const auto tokenizer = load_tokenizer(folder.path());
    EXPECT_EQ(tokenizer->id_of("<|new|>"), id);
    EXPECT_EQ(tokenizer->encode_ids("<|new|>", {}), Ids{id});
    EXPECT_EQ(tokenizer->vocab_size(), id + 1);
}

}  // namespace
}  // namespace garam
