#include "garam/text/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "garam/core/error.h"
#include "garam/text/tokenizer_files.h"
#include "tokenizer_data.h"
#include "toy_tokenizer.h"

namespace garam {
namespace {

using testing::added_token;
using testing::byte_level_json;
using testing::load;
using testing::load_error;
using testing::random_text;
using testing::sentencepiece_json;
using testing::with;
using testing::with_model;
using Ids = std::vector<std::int32_t>;

std::vector<std::string> pieces_of(const Tokenizer& tokenizer, std::string_view text,
                                   const Tokenizer::EncodeOptions& options = {}) {
    std::vector<std::string> pieces;
    for (const ByteSpan span : tokenizer.encode(text, options).spans)
        pieces.emplace_back(text.substr(span.begin, span.end - span.begin));
    return pieces;
}

TEST(Tokenizer, MergesByRankLeftmostFirst) {
    const auto tokenizer =
        load(byte_level_json({{"a", "b"}, {"b", "c"}, {"a", "a"}, {"ab", "ab"}}, {}));
    EXPECT_EQ(pieces_of(*tokenizer, "abc"), (std::vector<std::string>{"ab", "c"}));
    EXPECT_EQ(pieces_of(*tokenizer, "aaa"), (std::vector<std::string>{"aa", "a"}));
    EXPECT_EQ(pieces_of(*tokenizer, "ababab"), (std::vector<std::string>{"abab", "ab"}));
    EXPECT_EQ(pieces_of(*tokenizer, "aab bc"), (std::vector<std::string>{"a", "ab", " ", "bc"}));
}

TEST(Tokenizer, BytesOfACharacterHaveTheirOwnSpans) {
    const auto tokenizer = load(byte_level_json({}, {}));
    const Encoding encoding = tokenizer->encode("é가", {});
    EXPECT_EQ(encoding.ids, (Ids{0xC3, 0xA9, 0xEA, 0xB0, 0x80}));
    for (std::size_t i = 0; i < 5; ++i) {
        EXPECT_EQ(encoding.spans[i].begin, i);
        EXPECT_EQ(encoding.spans[i].end, i + 1);
    }
}

// decode(encode(x)) == x, and the spans lie end to end over the text.
void expect_round_trip(const Tokenizer& tokenizer, const std::string& text) {
    const Encoding encoding = tokenizer.encode(text, {.parse_special_tokens = false});
    ASSERT_EQ(encoding.ids.size(), encoding.spans.size());
    EXPECT_EQ(tokenizer.decode(encoding.ids, false), text);
    std::size_t at = 0;
    for (const ByteSpan span : encoding.spans) {
        EXPECT_EQ(span.begin, at);
        at = span.end;
    }
    EXPECT_EQ(at, text.size());
}

TEST(Tokenizer, ByteLevelRoundTripsAnyText) {
    const auto toy =
        load(byte_level_json({{"a", "e"}, {"Ġ", "Ġ"}, {"Ġ", "a"}, {"Ã", "©"}}, {"<|im_end|>"}));
    for (std::uint64_t seed = 0; seed < 300; ++seed)
        expect_round_trip(*toy, random_text(seed, 80));
    for (const char* name : {"gpt2", "llama-3.1", "exaone-3.5"}) {
        const Tokenizer* tokenizer = testing::reference_tokenizer(name);
        if (tokenizer == nullptr) continue;
        SCOPED_TRACE(name);
        for (std::uint64_t seed = 0; seed < 100; ++seed)
            expect_round_trip(*tokenizer, random_text(1000 + seed, 80));
    }
}

// With normalisers spans may meet within a character, but leave nothing out and never go back.
TEST(Tokenizer, SpansCoverNormalisedText) {
    for (const char* name : {"qwen2.5", "llama-2", "stories260K"}) {
        const Tokenizer* tokenizer = testing::reference_tokenizer(name);
        if (tokenizer == nullptr) continue;
        SCOPED_TRACE(name);
        for (std::uint64_t seed = 0; seed < 200; ++seed) {
            const std::string text = random_text(seed, 60);
            std::size_t covered = 0;
            std::size_t last = 0;
            for (const ByteSpan span :
                 tokenizer->encode(text, {.add_special_tokens = true}).spans) {
                EXPECT_LE(span.begin, covered);
                EXPECT_GE(span.begin, last);
                last = span.begin;
                covered = std::max(covered, span.end);
            }
            EXPECT_EQ(covered, text.size());
        }
    }
}

TEST(Tokenizer, SentencePieceSpansPointIntoTheOriginal) {
    const auto tokenizer =
        load(sentencepiece_json({"▁", "h", "i", "▁h"}, {{"▁", "h"}, {"▁h", "i"}}));
    const Encoding encoding = tokenizer->encode("hi  hi é", {.add_special_tokens = true});
    std::vector<std::string> tokens;
    for (const std::int32_t id : encoding.ids)
        tokens.push_back(tokenizer->token_of(id));
    EXPECT_EQ(tokens,
              (std::vector<std::string>{"<s>", "▁hi", "▁", "▁hi", "▁", "<0xC3>", "<0xA9>"}));
    const std::vector<std::pair<std::size_t, std::size_t>> want = {{0, 0}, {0, 2}, {2, 3}, {3, 6},
                                                                   {6, 7}, {7, 8}, {8, 9}};
    for (std::size_t i = 0; i < want.size(); ++i) {
        EXPECT_EQ(encoding.spans[i].begin, want[i].first) << i;
        EXPECT_EQ(encoding.spans[i].end, want[i].second) << i;
    }
    EXPECT_EQ(tokenizer->decode(encoding.ids, true), "hi  hi é");
}

TEST(Tokenizer, BrokenBytesBecomeReplacementCharacters) {
    const auto bytes = load(byte_level_json({}, {}));
    EXPECT_EQ(bytes->decode(Ids{'a', 0xC3, 'b', 0xEA, 0xB0}, false), "a\uFFFDb\uFFFD");
    const auto pieces = load(sentencepiece_json({"▁", "x"}, {}));
    // One for each byte of a run that is no text, as the reference does it.
    EXPECT_EQ(pieces->decode(Ids{3 + 0xEA, 3 + 0xB0, 260}, false), "\uFFFD\uFFFDx");
}

TEST(Tokenizer, UnknownCharactersWithoutFallback) {
    Json toy = sentencepiece_json({"▁", "x"}, {});
    toy = with_model(toy, "byte_fallback", false);
    const auto fused = load(toy);
    EXPECT_EQ(fused->encode_ids("x가나x", {}), (Ids{259, 260, 0, 260}));
    const Encoding encoding = fused->encode("x가나x", {});
    EXPECT_EQ(encoding.spans[2].begin, 1u);
    EXPECT_EQ(encoding.spans[2].end, 7u);
    const auto apart = load(with_model(toy, "fuse_unk", false));
    EXPECT_EQ(apart->encode_ids("x가나x", {}), (Ids{259, 260, 0, 0, 260}));
}

TEST(Tokenizer, AddedTokensLeftmostLongestWithTheirFlags) {
    Json toy = byte_level_json({}, {});
    Json::Array list;
    list.push_back(added_token("<a>", 300, {"special"}));
    list.push_back(added_token("<a><a>", 301, {}));
    list.push_back(added_token("<l>", 302, {"lstrip"}));
    list.push_back(added_token("<r>", 303, {"rstrip"}));
    list.push_back(added_token("word", 304, {"single_word"}));
    const auto tokenizer = load(with(toy, "added_tokens", std::move(list)));
    EXPECT_EQ(pieces_of(*tokenizer, "<a><a><a>"), (std::vector<std::string>{"<a><a>", "<a>"}));
    EXPECT_EQ(pieces_of(*tokenizer, "x \u3000<l> y"),
              (std::vector<std::string>{"x", " \u3000<l>", " ", "y"}));
    EXPECT_EQ(pieces_of(*tokenizer, "x<r> \n y"), (std::vector<std::string>{"x", "<r> \n ", "y"}));
    EXPECT_EQ(tokenizer->encode_ids("word", {}), (Ids{304}));
    EXPECT_EQ(tokenizer->encode_ids("(word)", {}), (Ids{'(', 304, ')'}));
    EXPECT_EQ(tokenizer->encode_ids("swords", {}).size(), 6u);
    EXPECT_EQ(tokenizer->encode_ids("éword", {}).size(), 6u);
    // Special tokens can be kept from being read; others are always tokens.
    EXPECT_EQ(tokenizer->encode_ids("<a>", {.parse_special_tokens = false}), (Ids{'<', 'a', '>'}));
    EXPECT_EQ(tokenizer->encode_ids("<r>", {.parse_special_tokens = false}), (Ids{303}));
    EXPECT_TRUE(tokenizer->is_special(300));
    EXPECT_FALSE(tokenizer->is_special(303));
    EXPECT_FALSE(tokenizer->is_special(-1));
    EXPECT_FALSE(tokenizer->is_special(1 << 30));
    EXPECT_EQ(tokenizer->vocab_size(), 305);
    EXPECT_EQ(tokenizer->decode(Ids{'h', 300, 303, 270, -5, 1 << 30}, true), "h<r>");
}

TEST(Tokenizer, NormalizedAddedTokensAreFoundAfterTheNormalizer) {
    Json toy = byte_level_json({}, {});
    toy = with(toy, "normalizer", Json::Object{{"type", "Lowercase"}});
    toy = with(toy, "added_tokens",
               Json::Array{added_token("<X>", 300, {"normalized"}), added_token("<Y>", 301, {})});
    const auto tokenizer = load(toy);
    EXPECT_EQ(tokenizer->encode_ids("<x><X><y><Y>", {}), (Ids{300, 300, '<', 'y', '>', 301}));
    EXPECT_EQ(pieces_of(*tokenizer, "A<X>"), (std::vector<std::string>{"A", "<X>"}));
}

TEST(Tokenizer, AtMostOneBos) {
    const auto tokenizer = load(byte_level_json({}, {"<s>", "</s>"}, "<s>"),
                                Json::Object{{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    EXPECT_TRUE(tokenizer->adds_bos());
    EXPECT_EQ(tokenizer->bos_id(), 256);
    EXPECT_EQ(tokenizer->eos_id(), 257);
    EXPECT_EQ(tokenizer->pad_id(), std::nullopt);
    EXPECT_EQ(tokenizer->encode_ids("a", {.add_special_tokens = true}), (Ids{256, 'a'}));
    EXPECT_EQ(tokenizer->encode_ids("<s>a", {.add_special_tokens = true}), (Ids{256, 'a'}));
    EXPECT_EQ(tokenizer->encode_ids("", {.add_special_tokens = true}), (Ids{256}));
    EXPECT_EQ(tokenizer->encode_ids("a", {}), (Ids{'a'}));
}

TEST(Tokenizer, ConfigDecidesOnBosAndEos) {
    const Json toy = byte_level_json({}, {"<s>", "</s>"}, "<s>");
    Json config = Json::Object{{"bos_token", Json::Object{{"content", "<s>"}}},
                               {"eos_token", "</s>"},
                               {"add_bos_token", false},
                               {"add_eos_token", true}};
    const auto tokenizer = load(toy, config);
    EXPECT_FALSE(tokenizer->adds_bos());
    EXPECT_EQ(tokenizer->encode_ids("a", {.add_special_tokens = true}), (Ids{'a', 257}));
    EXPECT_EQ(tokenizer->encode_ids("a</s>", {.add_special_tokens = true}), (Ids{'a', 257}));
    config.set("bos_token", nullptr);
    config.set("add_bos_token", true);
    EXPECT_NE(load_error(toy, config).find("add_bos_token"), std::string::npos);
}

TEST(Tokenizer, PreTokenizerBehaviours) {
    const auto pieces = [](const char* behavior, bool invert) {
        Json toy = byte_level_json({{"a", "-"}, {"-", "b"}, {"-", "-"}, {"a", "b"}}, {});
        const Json split = Json::Object{{"type", "Split"},
                                        {"pattern", Json::Object{{"String", "-"}}},
                                        {"behavior", behavior},
                                        {"invert", invert}};
        toy = with(toy, "pre_tokenizer",
                   tokenizer_json::sequence("pretokenizers",
                                            {split, tokenizer_json::byte_level(false, false)}));
        return pieces_of(*load(toy), "a--b");
    };
    using Pieces = std::vector<std::string>;
    EXPECT_EQ(pieces("Isolated", false), (Pieces{"a", "-", "-", "b"}));
    EXPECT_EQ(pieces("MergedWithPrevious", false), (Pieces{"a-", "-", "b"}));
    EXPECT_EQ(pieces("MergedWithNext", false), (Pieces{"a", "-", "-b"}));
    EXPECT_EQ(pieces("Contiguous", false), (Pieces{"a", "--", "b"}));
    EXPECT_EQ(pieces("Removed", false), (Pieces{"a", "b"}));
    EXPECT_EQ(pieces("Removed", true), (Pieces{"-", "-"}));
}

TEST(Tokenizer, MetaspaceFirstOnlyAtTheStart) {
    Json toy = sentencepiece_json({"▁", "x", "▁x"}, {{"▁", "x"}});
    toy = with(toy, "normalizer", nullptr);
    toy = with(toy, "pre_tokenizer",
               Json::Object{{"type", "Metaspace"},
                            {"replacement", "▁"},
                            {"prepend_scheme", "first"},
                            {"split", true}});
    toy = with(toy, "decoder",
               Json::Object{{"type", "Metaspace"},
                            {"replacement", "▁"},
                            {"prepend_scheme", "first"},
                            {"split", true}});
    const auto tokenizer = load(toy);
    EXPECT_EQ(pieces_of(*tokenizer, "x x</s>x x"),
              (std::vector<std::string>{"x", " x", "</s>", "x", " x"}));
    const Ids ids = tokenizer->encode_ids("x x</s>x x", {});
    EXPECT_EQ(ids, (Ids{261, 261, 2, 260, 261}));
    EXPECT_EQ(tokenizer->decode(ids, true), "x xx x");
}

TEST(Tokenizer, IgnoreMergesTakesWholePieces) {
    Json toy = byte_level_json({{"a", "b"}, {"c", "d"}, {"ab", "cd"}}, {});
    Json vocabulary = toy.at("model").at("vocab");
    vocabulary.set("bcd", 400);
    toy = with_model(toy, "vocab", vocabulary);
    EXPECT_EQ(load(toy)->encode_ids("bcd", {}).size(), 2u);
    EXPECT_EQ(load(with_model(toy, "ignore_merges", true))->encode_ids("bcd", {}), (Ids{400}));
}

TEST(Tokenizer, InvalidUtf8IsNamed) {
    const auto tokenizer = load(byte_level_json({}, {}));
    try {
        tokenizer->encode("ab\xFF", {});
        FAIL();
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "the text is not valid UTF-8 at byte 2");
    }
}

// A merge loop that looks through the piece for each merge would take hours here.
TEST(Tokenizer, LongPiecesAreNotQuadratic) {
    const auto tokenizer =
        load(byte_level_json({{"a", "a"}, {"aa", "aa"}, {"Ġ", "Ġ"}, {"aaaa", "aaaa"}}, {}));
    const std::string letters(std::size_t{1} << 20, 'a');
    EXPECT_EQ(tokenizer->encode_ids(letters, {}).size(), letters.size() / 8);
    const std::string spaces(std::size_t{1} << 20, ' ');
    EXPECT_EQ(tokenizer->encode_ids(spaces, {}).size(), spaces.size() / 2);
    const auto pieces = load(sentencepiece_json({"▁", "a"}, {{"a", "a"}, {"▁", "▁"}}));
    EXPECT_EQ(pieces->encode_ids(letters, {}).size(), letters.size() / 2 + 1);
    EXPECT_EQ(pieces->encode_ids(spaces, {}).size(), spaces.size() / 2 + 1);
}

// What a tokenizer's file puts in a text may not eat memory or hours.
TEST(Tokenizer, StepsThatGrowATextAreStopped) {
    const std::string long_text(60000, 'x');
    const auto step = [](const char* type, std::string_view key, const Json& value) {
        Json made = Json::Object{{"type", type}};
        made.set(key, value);
        return made;
    };
    const auto replacing = [&](const std::string& by) {
        Json made = step("Replace", "pattern", Json::Object{{"String", " "}});
        made.set("content", by);
        return made;
    };
    const auto repeated = [&](const char* list, const Json& one) {
        return step("Sequence", list, Json::Array(20, one));
    };
    const Json bytes = byte_level_json({}, {});
    const Json pieces = sentencepiece_json({"▁", "a"}, {});
    Json metaspace = step("Metaspace", "replacement", long_text);
    metaspace.set("prepend_scheme", "never");
    Json spelled = step("ByteLevel", "add_prefix_space", false);
    spelled.set("use_regex", false);
    const std::pair<const char*, Json> cases[] = {
        {"Replace", with(bytes, "normalizer", replacing(long_text))},
        {"Replace again and again",
         with(bytes, "normalizer", repeated("normalizers", replacing("  ")))},
        {"Prepend",
         with(bytes, "normalizer", step("Prepend", "prepend", std::string(400000, 'x')))},
        {"ByteLevel of the normalizer",
         with(bytes, "normalizer",
              repeated("normalizers", Json(Json::Object{{"type", "ByteLevel"}})))},
        {"ByteLevel of the pre-tokenizer",
         with(bytes, "pre_tokenizer", repeated("pretokenizers", spelled))},
        {"Metaspace", with(with(pieces, "normalizer", Json()), "pre_tokenizer", metaspace)}};
    std::string text;
    for (int i = 0; i < 1000; ++i)
        text += " \xC3\xA9";
    for (const auto& [name, document] : cases) {
        const auto tokenizer = load(document);
        try {
            tokenizer->encode_ids(text, {});
            ADD_FAILURE() << name;
        } catch (const Error& error) {
            EXPECT_NE(std::string(error.what()).find("the tokenizer's steps make more than"),
                      std::string::npos)
                << name << ": " << error.what();
        }
    }
    const auto decoded = [&](const Json& decoder, std::size_t count) {
        const auto tokenizer = load(with(bytes, "decoder", decoder));
        return tokenizer->decode(Ids(count, 'a'), {}).size();
    };
    Json letter = step("Replace", "pattern", Json::Object{{"String", "a"}});
    letter.set("content", long_text);
    EXPECT_THROW(decoded(letter, 2048), Error);
    letter.set("content", "aa");
    EXPECT_THROW(decoded(repeated("decoders", letter), 100), Error);
    EXPECT_EQ(decoded(step("Sequence", "decoders", Json::Array(4, letter)), 100), 1600);
}

// One attempt that is patient for each character of a text would be patient for minutes.
TEST(Tokenizer, PatternsGiveUpOnAWholeText) {
    Json split = Json::Object{{"type", "Split"}, {"behavior", "Isolated"}, {"invert", false}};
    split.set("pattern", Json::Object{{"Regex", "(?:a.*a.*a.*z)?."}});
    const auto tokenizer = load(with(byte_level_json({}, {}), "pre_tokenizer", split));
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_THROW(tokenizer->encode_ids(std::string(600, 'a') + "\nz", {}), Error);
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));
    EXPECT_EQ(tokenizer->encode_ids("aabaz", {}).size(), 5);
}

TEST(Tokenizer, ThreadsShareOne) {
    const auto tokenizer = load(byte_level_json({{"a", "e"}, {"Ġ", "a"}}, {}));
    std::vector<Ids> want;
    for (std::uint64_t seed = 0; seed < 50; ++seed)
        want.push_back(load(byte_level_json({{"a", "e"}, {"Ġ", "a"}}, {}))
                           ->encode_ids(random_text(seed, 200), {}));
    std::vector<std::thread> threads;
    std::vector<int> wrong(4, 0);
    for (std::size_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            for (std::uint64_t seed = 0; seed < 50; ++seed)
                wrong[t] += tokenizer->encode_ids(random_text(seed, 200), {}) != want[seed];
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_EQ(wrong, (std::vector<int>{0, 0, 0, 0}));
}

}  // namespace
}  // namespace garam
