#include "garam/text/unigram_model.h"

#include <gtest/gtest.h>

#include "garam/core/error.h"
#include "toy_tokenizer.h"

namespace garam {
namespace {

using testing::load;
using testing::load_error;
using Ids = std::vector<std::int32_t>;

Json unigram_json(const std::vector<std::pair<std::string, double>>& pieces, Json unknown,
                  bool byte_fallback = false) {
    Json::Array vocab;
    for (const auto& [piece, score] : pieces)
        vocab.push_back(Json::Array{piece, score});
    return Json::Object{{"added_tokens", Json::Array{}},
                        {"normalizer", nullptr},
                        {"pre_tokenizer", nullptr},
                        {"post_processor", nullptr},
                        {"decoder", Json::Object{{"type", "Fuse"}}},
                        {"model", Json::Object{{"type", "Unigram"},
                                               {"unk_id", std::move(unknown)},
                                               {"byte_fallback", byte_fallback},
                                               {"vocab", std::move(vocab)}}}};
}

TEST(UnigramModel, TakesTheBestSum) {
    const auto tokenizer = load(unigram_json(
        {{"<unk>", 0}, {"a", -1}, {"b", -1}, {"ab", -1.5}, {"abc", -4}, {"c", -1}, {"bc", -0.25}},
        0));
    EXPECT_EQ(tokenizer->encode_ids("abc", {}), (Ids{1, 6}));  // -1.25 of -4, -2.5
    EXPECT_EQ(tokenizer->encode_ids("ab", {}), (Ids{3}));      // -1.5 of -2
    EXPECT_EQ(tokenizer->encode_ids("abab", {}), (Ids{3, 3}));
    EXPECT_EQ(tokenizer->encode_ids("", {}), Ids{});
}

TEST(UnigramModel, OfEqualSumsTheFirstFoundCounts) {
    // a|bc is found from the start of bc, ab|c from that of c, which comes later.
    const auto tokenizer = load(
        unigram_json({{"<unk>", 0}, {"a", -1}, {"bc", -1}, {"ab", -1}, {"c", -1}, {"b", -9}}, 0));
    EXPECT_EQ(tokenizer->encode_ids("abc", {}), (Ids{1, 2}));
}

TEST(UnigramModel, UnknownCharactersAreJoined) {
    const auto tokenizer = load(unigram_json({{"<unk>", 0}, {"a", -1}, {"가나", -50}}, 0));
    const Encoding encoding = tokenizer->encode("aXYa\xF0\x9F\xA6\x99", {});
    EXPECT_EQ(encoding.ids, (Ids{1, 0, 1, 0}));
    EXPECT_EQ(encoding.spans[1].begin, 1u);
    EXPECT_EQ(encoding.spans[1].end, 3u);
    EXPECT_EQ(encoding.spans[3].end, 8u);
    // The way through unknown characters is the likelier one, but joined they are a piece.
    EXPECT_EQ(tokenizer->encode_ids("가나", {}), (Ids{2}));
    // The text of the unknown token itself is one, too.
    EXPECT_EQ(tokenizer->encode_ids("X<unk>Y", {}), (Ids{0}));
}

TEST(UnigramModel, UnknownCharactersBecomeBytes) {
    std::vector<std::pair<std::string, double>> pieces{{"<unk>", 0}, {"a", -1}};
    for (const char* byte : {"<0xEA>", "<0xB0>", "<0x80>"})
        pieces.emplace_back(byte, 0);
    const auto tokenizer = load(unigram_json(pieces, 0, true));
    const Encoding encoding = tokenizer->encode("a가", {});
    EXPECT_EQ(encoding.ids, (Ids{1, 2, 3, 4}));
    EXPECT_EQ(encoding.spans[2].begin, 2u);
    EXPECT_EQ(encoding.spans[2].end, 3u);
    EXPECT_EQ(tokenizer->encode_ids("b", {}), (Ids{0}));  // no token for its byte
}

TEST(UnigramModel, WithoutUnknownTokenTextsAreRefused) {
    const auto tokenizer = load(unigram_json({{"a", -1}, {"b", -1}}, nullptr));
    EXPECT_EQ(tokenizer->encode_ids("ab", {}), (Ids{0, 1}));
    try {
        tokenizer->encode_ids("aX", {});
        FAIL();
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("the character \"X\""), std::string::npos);
    }
}

TEST(UnigramModel, BadVocabulariesAreRefused) {
    const Json good = unigram_json({{"<unk>", 0}, {"a", -1}}, 0);
    const auto expect = [&](const Json& document, const char* part) {
        const std::string message = load_error(document);
        EXPECT_NE(message.find(part), std::string::npos) << message;
    };
    expect(testing::with_model(good, "unk_id", 2), "unk_id is 2");
    expect(testing::with_model(good, "unk_id", -1), "unk_id is -1");
    expect(testing::with_model(good, "vocab", Json::Array{}), "empty");
    expect(testing::with_model(good, "vocab", Json::Array{Json::Array{"a"}}), "vocab[0]");
    expect(testing::with_model(good, "vocab", Json::Array{Json::Array{"a", "b"}}), "number");
    expect(testing::with_model(good, "vocab", Json::Array{Json::Array{"a", nullptr}}), "number");
    expect(
        testing::with_model(good, "vocab", Json::Array{Json::Array{"a", 1}, Json::Array{"a", 1}}),
        "two ids");
    expect(testing::with_model(good, "vocab", Json::Object{{"a", 1}}), "array");
}

}  // namespace
}  // namespace garam
