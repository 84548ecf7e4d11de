// Tokenizers from files: what is read, saved and refused.
#include "garam/text/tokenizer_files.h"

#include <gtest/gtest.h>

#include "garam/core/error.h"
#include "garam/core/philox.h"
#include "garam/text/tokenizer.h"
#include "toy_tokenizer.h"

namespace garam {
namespace {

using testing::added_token;
using testing::byte_level_json;
using testing::load_error;
using testing::random_text;
using testing::read_file;
using testing::sentencepiece_json;
using testing::TempDir;
using testing::with;
using testing::with_model;
using Ids = std::vector<std::int32_t>;

TEST(TokenizerFiles, VocabularyAndMerges) {
    const TempDir folder;
    const Json toy = byte_level_json({{"a", "b"}, {"Ġ", "1"}}, {});
    folder.write("vocab.json", toy.at("model").at("vocab").dump());
    folder.write("merges.txt", "#version: 0.2\na b\nĠ 1\n\n");
    folder.write(
        "tokenizer_config.json",
        Json(Json::Object{
                 {"tokenizer_class", "GPT2Tokenizer"},
                 {"eos_token", "ab"},
                 {"chat_template", "{{ messages }}"},
                 {"added_tokens_decoder",
                  Json::Object{{"300", Json::Object{{"content", "<x>"}, {"special", true}}}}}})
            .dump());
    const auto tokenizer = load_tokenizer(folder.path());
    EXPECT_EQ(tokenizer->encode_ids("<x>cab 1", {}).size(), 4u);
    EXPECT_TRUE(tokenizer->is_special(300));
    EXPECT_EQ(tokenizer->chat_template(), "{{ messages }}");
    EXPECT_EQ(tokenizer->eos_id(), 256);

    // Saved as the tokenizer.json that means the same, tokens with a role listed.
    const TempDir saved;
    tokenizer->save(saved.path());
    const Json document = Json::parse_file(saved / "tokenizer.json");
    std::vector<std::string> listed;
    for (const Json& token : document.at("added_tokens").array())
        listed.push_back(token.at("content").string());
    EXPECT_EQ(listed, (std::vector<std::string>{"ab", "<x>"}));  // by id
    const auto again = load_tokenizer(saved.path());
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        const std::string text = random_text(seed, 60) + "<x> ab 12";
        EXPECT_EQ(again->encode_ids(text, {}), tokenizer->encode_ids(text, {}));
    }
    EXPECT_EQ(again->chat_template(), tokenizer->chat_template());
    EXPECT_EQ(again->eos_id(), tokenizer->eos_id());
}

TEST(TokenizerFiles, HuggingFaceFilesAreCopied) {
    const TempDir folder;
    const std::string content = byte_level_json({{"a", "b"}}, {"<s>"}, "<s>").dump(1);
    folder.write("tokenizer.json", content);
    folder.write("tokenizer_config.json", "{\"bos_token\": \"<s>\"}");
    folder.write("chat_template.jinja", "hello");
    const auto tokenizer = load_tokenizer(folder.path());
    EXPECT_EQ(tokenizer->chat_template(), "hello");
    const TempDir saved;
    tokenizer->save(saved.path());
    EXPECT_EQ(read_file(saved / "tokenizer.json"), content);
    EXPECT_EQ(read_file(saved / "tokenizer_config.json"), "{\"bos_token\": \"<s>\"}");
    EXPECT_EQ(read_file(saved / "chat_template.jinja"), "hello");
}

TEST(TokenizerFiles, NamedTemplatesAndOldAddedTokens) {
    const TempDir folder;
    folder.write("tokenizer.json", byte_level_json({}, {}).dump());
    folder.write("tokenizer_config.json",
                 R"({"chat_template": [{"name": "rag", "template": "r"},
                                       {"name": "default", "template": "d"}]})");
    folder.write("added_tokens.json", R"({"<pad>": 256})");
    folder.write("special_tokens_map.json", R"({"pad_token": "<pad>"})");
    const auto tokenizer = load_tokenizer(folder.path());
    EXPECT_EQ(tokenizer->chat_template(), "d");
    EXPECT_EQ(tokenizer->pad_id(), 256);
    EXPECT_EQ(tokenizer->encode_ids("<pad>", {}), (Ids{256}));
}

TEST(TokenizerFiles, RolesFromTheModelConfig) {
    const TempDir folder;
    folder.write("tokenizer.json", byte_level_json({}, {}).dump());
    folder.write("config.json", R"({"eos_token_id": 97, "bos_token_id": [1, 2]})");
    const auto tokenizer = load_tokenizer(folder.path());
    EXPECT_EQ(tokenizer->eos_id(), 97);
    EXPECT_EQ(tokenizer->bos_id(), std::nullopt);
}

TEST(TokenizerFiles, WhatIsMissingIsNamed) {
    const TempDir folder;
    const auto message = [&] {
        try {
            load_tokenizer(folder.path());
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    EXPECT_NE(message().find("neither tokenizer.json nor vocab.json"), std::string::npos);
    folder.write("vocab.json", "{\"a\": 0}");
    EXPECT_NE(message().find("merges.txt is missing"), std::string::npos);
    folder.write("tokenizer.model", "x");
    EXPECT_NE(message().find("tokenizer.model: no SentencePiece model"), std::string::npos);
    folder.write("vocab.json", "{\"a\": 0}");
    folder.write("merges.txt", "a b c\n");
    EXPECT_NE(message().find("merges.txt, line 1"), std::string::npos);
    folder.write("merges.txt", "a b\n");
    EXPECT_NE(message().find("\"b\" is not in the vocabulary"), std::string::npos);
    folder.write("merges.txt", "a \xFF\n");
    EXPECT_NE(message().find("UTF-8 at byte 2"), std::string::npos);
    folder.write("merges.txt", "");
    folder.write("tokenizer_config.json", R"({"tokenizer_class": "RobertaTokenizer"})");
    EXPECT_NE(message().find("RobertaTokenizer"), std::string::npos);
    EXPECT_THROW(load_tokenizer(folder / "nowhere"), Error);
}

TEST(TokenizerFiles, BadDescriptionsAreRefusedByName) {
    const Json toy = byte_level_json({{"a", "b"}}, {"<s>"}, "<s>");
    const auto expect = [](const Json& document, const std::string& part) {
        const std::string message = load_error(document);
        EXPECT_NE(message.find(part), std::string::npos) << "got: " << message;
        EXPECT_NE(message.find("tokenizer.json"), std::string::npos) << "got: " << message;
    };
    expect(with(toy, "model", nullptr), "model");
    expect(with_model(toy, "type", "WordLevel"), "WordLevel");
    expect(with_model(toy, "type", "Unigram"), "vocab must be an array");
    expect(with_model(toy, "type", "WordPiece"), "[UNK]");
    expect(with_model(toy, "vocab", Json::Object{}), "empty");
    expect(with_model(toy, "vocab", Json::Object{{"a", -1}}), "-1");
    expect(with_model(toy, "vocab", Json::Object{{"a", std::int64_t{1} << 40}}), "1099511627776");
    expect(with_model(toy, "vocab", Json::Object{{"a", 1}, {"b", 1}}), "names two tokens");
    expect(with_model(toy, "vocab", Json::Object{{"a", 1.5}}), "vocab");
    expect(with_model(toy, "merges", Json::Array{"a b", "nospace"}), "merges[1]");
    expect(with_model(toy, "merges", Json::Array{Json::Array{"a"}}), "merges[0]");
    expect(with_model(toy, "merges", Json::Array{"a \u4E00"}), "\u4E00");
    expect(with_model(toy, "merges", Json::Array{7}), "merges[0]");
    expect(with_model(toy, "unk_token", "nope"), "nope");
    expect(with_model(toy, "dropout", 0.1), "dropout");
    expect(with_model(with_model(toy, "merges", Json::Array{"a b"}), "continuing_subword_prefix",
                      "##"),
           "merges[0]: \"b\" lacks the prefix");
    const auto normalizer = [&](const Json& description, const std::string& part) {
        expect(with(toy, "normalizer", description), part);
    };
    normalizer(Json::Object{{"type", "Precompiled"}}, "precompiled_charsmap");
    normalizer(Json::Object{{"type", "Precompiled"}, {"precompiled_charsmap", "!"}}, "base64");
    normalizer(Json::Object{{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}}, "cut off");
    normalizer(Json::Object{{"type", "Precompiled"}, {"precompiled_charsmap", "/////w=="}},
               "4294967295 bytes");
    normalizer(Json::Object{{"type", "Guess"}}, "Guess");
    expect(with(toy, "pre_tokenizer", Json::Object{{"type", "UnicodeScripts"}}), "UnicodeScripts");
    expect(with(toy, "pre_tokenizer",
                Json::Object{{"type", "Punctuation"}, {"behavior", "Sometimes"}}),
           "Sometimes");
    expect(with(toy, "pre_tokenizer",
                Json::Object{{"type", "CharDelimiterSplit"}, {"delimiter", "ab"}}),
           "not one character");
    expect(with(toy, "pre_tokenizer", tokenizer_json::split("(unclosed")), "(unclosed");
    expect(with(toy, "decoder", Json::Object{{"type", "CTC"}}), "CTC");
    expect(with(toy, "post_processor", Json::Object{{"type", "BertProcessing"}}), "cls");
    expect(with(toy, "post_processor",
                Json::Object{{"type", "BertProcessing"},
                             {"cls", Json::Array{"<s>", 1 << 20}},
                             {"sep", Json::Array{"<s>", 1}}}),
           "1048576");
    expect(with(toy, "post_processor", Json::Object{{"type", "Other"}}), "Other");
    const std::pair<std::string, std::int64_t> far{"<far>", 100000};
    expect(with(toy, "post_processor", tokenizer_json::template_processing(&far, nullptr)),
           "100000");
    expect(with(toy, "added_tokens", Json::Array{added_token("<x>", 97, {})}), "names two tokens");
    expect(with(toy, "added_tokens", Json::Array{added_token("a", 300, {})}), "two ids");
    expect(with(toy, "added_tokens", Json::Array{added_token("<x>", -3, {})}), "-3");
    expect(with(toy, "added_tokens", Json::Array{Json::Object{{"id", 300}}}), "content");
    expect(with(toy, "added_tokens",
                Json::Array{added_token(std::string(2000, 'x').c_str(), 300, {})}),
           "2000 bytes");
    expect(with(toy, "normalizer",
                tokenizer_json::sequence("normalizers",
                                         Json::Array(1000, Json(Json::Object{{"type", "NFC"}})))),
           "32 steps");
}

// Damaged files end in an Error or in a tokenizer, never in anything else.
TEST(TokenizerFiles, DamagedFilesDoNoHarm) {
    const std::string good = sentencepiece_json({"▁", "a", "b"}, {{"a", "b"}}).dump();
    Random random(11);
    int loaded = 0;
    for (int round = 0; round < 300; ++round) {
        std::string text = good;
        const std::uint64_t changes = 1 + random.below(3);
        for (std::uint64_t i = 0; i < changes; ++i) {
            // Mostly behind and before the long list of byte tokens.
            std::size_t at = random.below(text.size());
            if (at > 1500 && at + 1500 < text.size()) at = text.size() - 1 - random.below(800);
            switch (random.below(3)) {
                case 0:
                    text[at] = static_cast<char>(random.below(256));
                    break;
                case 1:
                    text.erase(at, random.below(20));
                    break;
                default:
                    text.insert(at, text.substr(random.below(text.size()), random.below(20)));
            }
        }
        const TempDir folder;
        folder.write("tokenizer.json", text);
        try {
            const auto tokenizer = load_tokenizer(folder.path());
            tokenizer->decode(tokenizer->encode_ids("ab 가 </s>", {.add_special_tokens = true}),
                              false);
            ++loaded;
        } catch (const Error& error) {
            EXPECT_STRNE(error.what(), "");
        }
    }
    EXPECT_LT(loaded, 300);
}

}  // namespace
}  // namespace garam
