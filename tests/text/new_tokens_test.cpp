#include "garam/text/new_tokens.h"

#include <gtest/gtest.h>

#include "garam/core/error.h"
#include "testing/temp_dir.h"
#include "text/toy_tokenizer.h"

namespace garam {
namespace {

using testing::byte_level_json;
using testing::read_file;
using testing::TempDir;
using Ids = std::vector<std::int32_t>;

std::vector<std::string> names(const Json& config) {
    std::vector<std::string> result;
    for (const Json& name : config.at("additional_special_tokens").array())
        result.push_back(name.string());
    return result;
}

TEST(NewTokens, AreNumberedOnMatchedAndSaved) {
    const TempDir dir;
    // The last id is known to tokenizer_config.json alone.
    dir.write("tokenizer.json", byte_level_json({{"a", "b"}}, {"<s>"}).dump());
    dir.write("tokenizer_config.json",
              R"({"additional_special_tokens": ["<s>"], "added_tokens_decoder":
                  {"300": {"content": "<|late|>", "special": true}}})");
    const auto plain = load_tokenizer(dir.path());
    ASSERT_EQ(plain->vocab_size(), 301);
    const auto tokenizer =
        load_tokenizer(dir.path(), {"<|think|>", "ab", "<s>", "생각", "<|think|>"});
    EXPECT_EQ(tokenizer->vocab_size(), 303);
    const std::string text = "ab<|think|>b생각<s>";
    const Ids ids = tokenizer->encode_ids(text, {});
    EXPECT_EQ(ids, (Ids{256, 301, 'b', 302, 257}));
    EXPECT_EQ(tokenizer->decode(ids, false), text);
    EXPECT_EQ(tokenizer->decode(ids, true), "abb");
    EXPECT_EQ(tokenizer->encode_ids("<|think|>", {.parse_special_tokens = false}).size(), 9u);
    EXPECT_EQ(tokenizer->encode_ids("plain ab", {}), plain->encode_ids("plain ab", {}));

    const TempDir out;
    tokenizer->save(out.path());
    const auto saved = load_tokenizer(out.path());
    EXPECT_EQ(saved->vocab_size(), 303);
    EXPECT_EQ(saved->encode_ids(text, {}), ids);
    const Json document = Json::parse_file(out / "tokenizer.json");
    std::int64_t last = -1;
    for (const Json& token : document.at("added_tokens").array()) {
        EXPECT_GT(token.at("id").integer(), last);
        last = token.at("id").integer();
    }
    EXPECT_EQ(last, 302);
    const Json config = Json::parse_file(out / "tokenizer_config.json");
    EXPECT_EQ(names(config), (std::vector<std::string>{"<s>", "<|think|>", "생각"}));
    EXPECT_EQ(config.at("added_tokens_decoder").at("301").at("content").string(), "<|think|>");
    EXPECT_TRUE(config.at("added_tokens_decoder").at("302").at("special").boolean());

    EXPECT_NE(tokenizer_of_adapter(out.path(), *plain), nullptr);
    EXPECT_EQ(tokenizer_of_adapter(dir.path(), *plain), nullptr);
    EXPECT_EQ(tokenizer_of_adapter(dir / "nothing", *plain), nullptr);
}

TEST(NewTokens, NothingNewLeavesTheFilesAsTheyAre) {
    const TempDir dir, out;
    dir.write("tokenizer.json", byte_level_json({}, {"<s>"}).dump());
    load_tokenizer(dir.path(), {"<s>", "a"})->save(out.path());
    EXPECT_EQ(read_file(out / "tokenizer.json"), read_file(dir / "tokenizer.json"));
    EXPECT_THROW(load_tokenizer(dir.path(), {""}), Error);
    EXPECT_THROW(load_tokenizer(dir.path(), {std::string(2000, 'x')}), Error);
}

TEST(NewTokens, OfVocabularyAndMerges) {
    const TempDir dir, out;
    Json vocabulary{Json::Object{}};
    for (const char* token : {"a", "b", "ab"})
        vocabulary.set(token, static_cast<std::int64_t>(vocabulary.object().size()));
    dir.write("vocab.json", vocabulary.dump());
    dir.write("merges.txt", "a b\n");
    const auto tokenizer = load_tokenizer(dir.path(), {"<|x|>"});
    EXPECT_EQ(tokenizer->encode_ids("ab<|x|>a", {}), (Ids{2, 3, 0}));
    tokenizer->save(out.path());
    EXPECT_EQ(load_tokenizer(out.path())->encode_ids("ab<|x|>a", {}), (Ids{2, 3, 0}));
}

}  // namespace
}  // namespace garam
