// Tokenizers written as GGUF keys and read again: the same ids.
#include "garam/text/gguf_tokenizer_keys.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "garam/core/error.h"
#include "garam/io/gguf.h"
#include "garam/text/tokenizer.h"
#include "testing/test_data.h"
#include "tokenizer_data.h"
#include "toy_tokenizer.h"

namespace garam {
namespace {

using testing::TempDir;

const GgufValue* find(const GgufKeys& keys, const std::string& key) {
    const auto found =
        std::find_if(keys.begin(), keys.end(), [&](const auto& k) { return k.first == key; });
    return found == keys.end() ? nullptr : &found->second;
}

std::string text_at(const GgufKeys& keys, const std::string& key) {
    const GgufValue* value = find(keys, key);
    return value == nullptr ? "" : std::get<std::string>(*value);
}

std::unique_ptr<Tokenizer> read_back(const GgufKeys& keys, const TempDir& dir) {
    GgufWriter writer(dir / "t.gguf", keys, {});
    writer.commit();
    return load_tokenizer(dir / "t.gguf");
}

void expect_same(const Tokenizer& got, const Tokenizer& want) {
    EXPECT_EQ(got.bos_id(), want.bos_id());
    EXPECT_EQ(got.eos_id(), want.eos_id());
    EXPECT_EQ(got.pad_id(), want.pad_id());
    EXPECT_EQ(got.adds_bos(), want.adds_bos());
    EXPECT_EQ(got.chat_template(), want.chat_template());
    for (std::int32_t id = 0; id < want.vocab_size(); ++id) {
        ASSERT_EQ(got.token_of(id), want.token_of(id));
        ASSERT_EQ(got.is_special(id), want.is_special(id)) << want.token_of(id);
    }
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        const std::string text =
            testing::random_text(seed, 40) +
            " The river isn't 1234 km long,  it's\n\n  강이 길다: `x += 10`; hello";
        const Tokenizer::EncodeOptions options{.add_special_tokens = true};
        const std::vector<std::int32_t> ids = want.encode_ids(text, options);
        ASSERT_EQ(got.encode_ids(text, options), ids) << text;
        ASSERT_EQ(got.decode(ids, true), want.decode(ids, true)) << text;
    }
}

class GgufTokenizerKeysOf : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufTokenizerKeysOf, ReadBackTheSame) {
    const TempDir folder;
    if (!testing::collect_tokenizer_files(GetParam(), folder))
        GTEST_SKIP() << "reference data is not here: " << GetParam();
    const auto want = load_tokenizer(folder.path());
    const GgufTokenizerKeys written = gguf_tokenizer_keys(folder.path(), want->vocab_size() + 3);
    const TempDir dir;
    const auto got = read_back(written.keys, dir);
    EXPECT_EQ(got->vocab_size(), want->vocab_size() + 3);
    expect_same(*got, *want);
    const std::string name = GetParam();
    EXPECT_EQ(text_at(written.keys, "tokenizer.ggml.pre"), name == "gpt2"         ? "gpt-2"
                                                           : name == "exaone-3.5" ? "smollm"
                                                           : name == "llama-3.1"  ? "llama-bpe"
                                                           : name == "qwen2.5"    ? "qwen2"
                                                                                  : "default");
    // Copied from that GGUF, the keys are the same ones.
    EXPECT_EQ(gguf_tokenizer_keys(dir / "t.gguf", 0).keys.size(), written.keys.size());
    for (const auto& [key, value] : gguf_tokenizer_keys(dir / "t.gguf", 0).keys)
        EXPECT_EQ(value, *find(written.keys, key)) << key;
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, GgufTokenizerKeysOf,
                         ::testing::Values("gpt2", "exaone-3.5", "llama-2", "llama-3.1", "qwen2.5",
                                           "stories260K"),
                         [](const auto& test) {
                             std::string name = test.param;
                             std::replace_if(
                                 name.begin(), name.end(),
                                 [](char c) { return c == '-' || c == '.'; }, '_');
                             return name;
                         });

TEST(GgufTokenizerKeys, TypesAndUnusedTokens) {
    Json document = testing::byte_level_json({{"a", "b"}}, {"<|bos|>", "plain"}, "<|bos|>");
    // The second one is no special token, only one that is not cut.
    Json::Array added = document.at("added_tokens").array();
    added[1].set("special", false);
    document.set("added_tokens", added);
    const TempDir folder;
    folder.write("tokenizer.json", document.dump());
    folder.write("tokenizer_config.json", R"({"bos_token": "<|bos|>", "chat_template": "x"})");
    const GgufTokenizerKeys written = gguf_tokenizer_keys(folder.path(), 262);
    const auto& types =
        std::get<std::vector<std::int32_t>>(*find(written.keys, "tokenizer.ggml.token_type"));
    const auto& tokens =
        std::get<std::vector<std::string>>(*find(written.keys, "tokenizer.ggml.tokens"));
    ASSERT_EQ(types.size(), 262u);
    EXPECT_EQ(types[0], 1);
    EXPECT_EQ(types[257], 3);
    EXPECT_EQ(types[258], 4);
    EXPECT_EQ(types[261], 5);
    EXPECT_EQ(tokens[261], "[PAD261]");
    EXPECT_EQ(std::get<bool>(*find(written.keys, "tokenizer.ggml.add_bos_token")), true);
    EXPECT_EQ(std::get<bool>(*find(written.keys, "tokenizer.ggml.add_eos_token")), false);
    EXPECT_EQ(text_at(written.keys, "tokenizer.chat_template"), "x");
    try {
        gguf_tokenizer_keys(folder.path(), 258);
        FAIL();
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("has 259 tokens, the model's embedding only 258"),
                  std::string::npos)
            << error.what();
    }
}

TEST(GgufTokenizerKeys, UnknownPipelinesAreRefusedAndOddMergesTold) {
    const TempDir folder;
    Json document = testing::byte_level_json({{"a", "b"}}, {});
    document.set("pre_tokenizer",
                 Json(Json::Object{
                     {"type", "Sequence"},
                     {"pretokenizers",
                      Json(Json::Array{
                          Json(Json::Object{{"type", "Split"},
                                            {"pattern", Json(Json::Object{{"Regex", "[a-z]+"}})},
                                            {"behavior", "Isolated"},
                                            {"invert", false}}),
                          document.at("pre_tokenizer")})}}));
    folder.write("tokenizer.json", document.dump());
    try {
        gguf_tokenizer_keys(folder.path(), 300);
        FAIL();
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("none that garam knows llama.cpp's name of"),
                  std::string::npos)
            << error.what();
    }
    // "abc" is two pieces in two ways, of which the merges tell one.
    const TempDir other;
    other.write("tokenizer.json", testing::sentencepiece_json({"a", "b", "c", "ab", "bc", "abc"},
                                                              {{"a", "b"}, {"b", "c"}, {"ab", "c"}})
                                      .dump());
    const GgufTokenizerKeys written = gguf_tokenizer_keys(other.path(), 300);
    ASSERT_EQ(written.notes.size(), 1u);
    EXPECT_NE(written.notes[0].find("SentencePiece scores"), std::string::npos);
}

}  // namespace
}  // namespace garam
