// The ways by which a tokenizer is fast, beside slow ones that give the same by construction.
#include <gtest/gtest.h>

#include <algorithm>

#include "garam/core/error.h"
#include "garam/core/json.h"
#include "garam/core/parallel.h"
#include "garam/text/pattern_scanner.h"
#include "garam/text/tokenizer_files.h"
#include "garam/text/unicode.h"
#include "garam/text/unicode_normal_form.h"
#include "tokenizer_data.h"
#include "toy_tokenizer.h"

namespace garam {
namespace {

using testing::byte_level_json;
using testing::load;
using testing::random_text;
using testing::with_model;
using Ids = std::vector<std::int32_t>;
using Merges = std::vector<std::pair<std::string, std::string>>;

std::uint64_t next_random(std::uint64_t& state) {  // splitmix64
    std::uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

// Merging by its definition: the pair of the lowest rank, leftmost first, until there is none.
std::vector<std::string> merged(std::string_view word, const Merges& merges) {
    std::vector<std::string> parts;
    for (const char c : word)
        parts.emplace_back(1, c);
    for (;;) {
        std::size_t best = merges.size();
        std::size_t at = 0;
        for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
            for (std::size_t rank = 0; rank < best; ++rank) {
                if (merges[rank].first != parts[i] || merges[rank].second != parts[i + 1]) continue;
                best = rank;
                at = i;
            }
        }
        if (best == merges.size()) return parts;
        parts[at] += parts[at + 1];
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
}

Merges random_merges(std::uint64_t seed) {
    Merges merges;
    std::vector<std::string> tokens = {"a", "b", "c", "d", "e", "f"};
    std::uint64_t state = seed;
    while (merges.size() < 40) {
        const std::string left = tokens[next_random(state) % tokens.size()];
        const std::string right = tokens[next_random(state) % tokens.size()];
        const std::pair<std::string, std::string> pair{left, right};
        if (left.size() + right.size() > 12 ||
            std::find(merges.begin(), merges.end(), pair) != merges.end())
            continue;
        merges.push_back(pair);
        tokens.push_back(left + right);
    }
    return merges;
}

// Words of the lengths at which the way changes: 32 bytes (remembered), 64 (looked through), more (cut up, a
// heap). Of six letters some stand side by side in no token, so long words are cut.
TEST(FastPath, MergesByDefinition) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const Merges merges = random_merges(seed);
        const auto tokenizer = load(byte_level_json(merges, {}));
        const auto whole_first =
            load(with_model(byte_level_json(merges, {}), "ignore_merges", true));
        std::uint64_t state = seed + 1000;
        for (const std::size_t size : {1, 2, 3, 5, 8, 12, 31, 32, 33, 63, 64, 65, 150}) {
            for (int i = 0; i < 20; ++i) {
                std::string word;
                while (word.size() < size)
                    word += static_cast<char>('a' + next_random(state) % (seed % 2 == 0 ? 6 : 2));
                const std::vector<std::string> want = merged(word, merges);
                for (const bool again : {false, true}) {
                    const Encoding got = tokenizer->encode(word, {});
                    ASSERT_EQ(tokenizer->encode_ids(word, {}), got.ids);
                    ASSERT_EQ(got.ids.size(), want.size()) << word << (again ? " again" : "");
                    std::size_t at = 0;
                    for (std::size_t t = 0; t < want.size(); ++t) {
                        ASSERT_EQ(tokenizer->token_of(got.ids[t]), want[t]) << word;
                        ASSERT_EQ(got.spans[t].begin, at);
                        at += want[t].size();
                        ASSERT_EQ(got.spans[t].end, at);
                    }
                }
                const auto id = whole_first->id_of(word);
                ASSERT_EQ(whole_first->encode_ids(word, {}),
                          id ? Ids{*id} : tokenizer->encode_ids(word, {}))
                    << word;
            }
        }
    }
}

// SentencePiece's mark of a space is a character like any other to byte-level merges, which may join a part of
// it (E2, "â") with what stands before.
TEST(FastPath, LongWordsAreNotCutBeforeAPartOfACharacter) {
    const auto tokenizer = load(byte_level_json({{"Ġ", "â"}}, {}));
    for (const std::size_t size : {4, 31, 32, 33, 100}) {
        const std::string word = " ▁" + std::string(size - 4, '!');
        Ids want = {*tokenizer->id_of("Ġâ"), 0x96, 0x81};
        want.insert(want.end(), size - 4, '!');
        EXPECT_EQ(tokenizer->encode_ids(word, {}), want) << size;
    }
}

std::string spaced(std::string text) {
    for (std::size_t at = text.find(' '); at != std::string::npos; at = text.find(' ', at))
        text.replace(at, 1, "▁");
    return text;
}

// A whole text is one piece there; it is cut before spaces unless a token has one inside.
TEST(FastPath, MergesSentencePieceTextsByDefinition) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        Merges merges = random_merges(seed);
        for (auto& [left, right] : merges) {
            for (std::string* side : {&left, &right})
                std::replace(side->begin(), side->end(), 'a', ' ');
        }
        std::vector<std::string> pieces = {"▁", "b", "c", "d", "e", "f"};
        Merges spelled;
        for (const auto& [left, right] : merges)
            spelled.emplace_back(spaced(left), spaced(right));
        const auto tokenizer = load(testing::sentencepiece_json(pieces, spelled));
        std::uint64_t state = seed + 1000;
        for (int i = 0; i < 200; ++i) {
            std::string text;
            while (text.size() < static_cast<std::size_t>(i))
                text += " bcdef"[next_random(state) % 6];
            const std::vector<std::string> want = merged(" " + text, merges);
            const Encoding got = tokenizer->encode(text, {});
            ASSERT_EQ(got.ids.size(), i == 0 ? 0 : want.size()) << text;
            for (std::size_t t = 0; t < got.ids.size(); ++t)
                ASSERT_EQ(tokenizer->token_of(got.ids[t]), spaced(want[t])) << text;
        }
    }
}

// Where merges join tokens of bytes, these are more than their byte, and may reach over any cut.
TEST(FastPath, JoinedByteTokens) {
    const auto tokenizer = load(testing::sentencepiece_json(
        {"▁", "x", "<0xC3><0xA9>", "<0xA9><0xC3>"}, {{"<0xA9>", "<0xC3>"}, {"<0xC3>", "<0xA9>"}}));
    const Encoding one = tokenizer->encode("xé", {});
    ASSERT_EQ(one.ids, (Ids{259, 260, 261}));
    EXPECT_EQ(one.spans[2].begin, 1u);
    EXPECT_EQ(one.spans[2].end, 3u);
    EXPECT_EQ(tokenizer->encode_ids("éé", {}), (Ids{259, 3 + 0xC3, 262, 3 + 0xA9}));
}

// More words than the cache has places, of two models that disagree on all of them.
TEST(FastPath, RememberedWordsAreTheirModelsOwn) {
    const auto joins = load(byte_level_json({{"a", "b"}, {"ab", "ab"}, {"c", "d"}}, {}));
    const auto apart = load(byte_level_json({}, {}));
    for (int round = 0; round < 2; ++round) {
        for (std::uint64_t i = 0; i < 100'000; ++i) {
            std::string word = "abab";
            for (std::uint64_t rest = i; rest > 0; rest /= 8)
                word += static_cast<char>('e' + rest % 8);
            const Ids got = joins->encode_ids(word, {});
            ASSERT_EQ(got.size(), word.size() - 3) << word;
            ASSERT_EQ(joins->token_of(got[0]), "abab");
            ASSERT_EQ(apart->encode_ids(word, {}).size(), word.size()) << word;
        }
    }
}

// A word with NUL bytes behind it is another one, whatever the cache fills its places with.
TEST(FastPath, NulBytesCount) {
    const auto tokenizer = load(byte_level_json({{"a", "Ā"}}, {}));  // 'a' and NUL
    const std::string nul(1, '\0');
    EXPECT_EQ(tokenizer->encode_ids("a", {}), (Ids{'a'}));
    EXPECT_EQ(tokenizer->encode_ids(nul, {}), (Ids{0}));
    EXPECT_EQ(tokenizer->encode_ids(nul + nul, {}), (Ids{0, 0}));
    EXPECT_EQ(tokenizer->encode_ids(nul, {}), (Ids{0}));
}

// The Angstrom sign behind a text is normalised on its own, and takes the text the long way.
TEST(FastPath, TextsInNormalFormStay) {
    std::size_t normal = 0;
    const auto check = [&](const std::string& text, NormalForm form) {
        if (!is_normal(text, form)) return;
        ++normal;
        const std::string sign = form.compose ? "\u00C5" : "A\u030A";
        ASSERT_EQ(normal_form(AlignedText(text + "\u212B", 0), form).text(), text + sign) << text;
    };
    for (const NormalForm form : {NormalForm{true, false}, NormalForm{false, false},
                                  NormalForm{true, true}, NormalForm{false, true}}) {
        for (char32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 61) {
            if (c >= 0xD800 && c < 0xE000) continue;
            std::string text;
            for (const char* beside : {"e", "\u00E9", "\u1100", "\uAC00"}) {
                text = beside;
                append_utf8(text, c);
                check(text + beside, form);
            }
        }
        for (std::uint64_t seed = 0; seed < 2000; ++seed)
            check(random_text(seed, 1 + seed % 5), form);
    }
    EXPECT_GT(normal, 50'000u);
    EXPECT_TRUE(is_normal("\u00E9 \uAC00\uB098\u4E00", {true, false}));
    EXPECT_FALSE(is_normal("e\u0301", {true, false}));
    EXPECT_FALSE(is_normal("\u1100\u1161", {true, false}));
    EXPECT_FALSE(is_normal("\uAC00", {false, false}));
    EXPECT_FALSE(is_normal("\uFB01", {true, true}));
}

Json split(const std::string& pattern) {
    return tokenizer_json::split(pattern.c_str());
}

// The same tokenizer with its patterns written so that no scanner knows them, and with a normalizer that
// strips nothing, so that texts go the way of those that change.
Json slow_twin(const std::string& name, Json document) {
    Json::Array steps;
    if (name == "llama-3.1")
        steps = {split(std::string("(?:") + tokenizer_json::kLlama3Pattern + ")")};
    if (name == "exaone-3.5")
        steps = {split("(?:\\p{N})"), split(std::string("(?:") + kGpt2Pattern + ")")};
    if (name == "gpt2") steps = {split(std::string("(?:") + kGpt2Pattern + ")")};
    if (name == "qwen2.5")
        steps = {split(std::string("(?:") + tokenizer_json::kQwen2Pattern + ")")};
    steps.push_back(tokenizer_json::byte_level(false, false));
    Json::Array normalizers;
    if (name == "qwen2.5") normalizers.push_back(Json::Object{{"type", "NFC"}});
    normalizers.push_back(
        Json::Object{{"type", "Strip"}, {"strip_left", false}, {"strip_right", false}});
    document.set("normalizer", tokenizer_json::sequence("normalizers", std::move(normalizers)));
    document.set("pre_tokenizer", tokenizer_json::sequence("pretokenizers", std::move(steps)));
    return document;
}

class FastPathOf : public ::testing::TestWithParam<std::string> {};

TEST_P(FastPathOf, EqualsTheSlowOne) {
    const Tokenizer* fast = testing::reference_tokenizer(GetParam());
    if (fast == nullptr) GTEST_SKIP() << "no reference data";
    const testing::TempDir folder;
    fast->save(folder.path());
    const auto slow =
        load(slow_twin(GetParam(), Json::parse_file(folder.path() / "tokenizer.json")));
    std::uint64_t state = 5;
    std::vector<std::string> specials;
    for (std::int32_t id = 0; id < fast->vocab_size(); ++id)
        if (fast->is_special(id)) specials.push_back(fast->token_of(id));
    specials.insert(specials.end(), {"It's we'LL", "오늘은 비가 온다", "  \n\n ", "12345", "한글",
                                     "\u1112\u1161\u11AB"});
    for (std::uint64_t seed = 0; seed < 5000; ++seed) {
        std::string text;
        for (int part = 0; part < 3; ++part) {
            text += random_text(3 * seed + static_cast<std::uint64_t>(part),
                                1 + next_random(state) % 40);
            text += specials[next_random(state) % specials.size()];
        }
        const Tokenizer::EncodeOptions options{.add_special_tokens = seed % 2 == 0,
                                               .parse_special_tokens = seed % 3 != 0};
        const Encoding got = fast->encode(text, options);
        const Encoding want = slow->encode(text, options);
        ASSERT_EQ(got.ids, want.ids) << text;
        ASSERT_EQ(fast->encode_ids(text, options), want.ids) << text;
        ASSERT_EQ(got.spans.size(), want.spans.size()) << text;
        for (std::size_t i = 0; i < want.spans.size(); ++i) {
            ASSERT_EQ(got.spans[i].begin, want.spans[i].begin) << i << " of " << text;
            ASSERT_EQ(got.spans[i].end, want.spans[i].end) << i << " of " << text;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, FastPathOf,
                         ::testing::Values("llama-3.1", "exaone-3.5", "gpt2", "qwen2.5"),
                         testing::case_name);

TEST(FastPath, BatchesAreTheSameForAnyNumberOfThreads) {
    const auto tokenizer = load(byte_level_json({{"a", "e"}, {"Ġ", "a"}}, {"<s>"}, "<s>"));
    std::vector<std::string> texts;
    for (std::uint64_t seed = 0; seed < 101; ++seed)
        texts.push_back(random_text(seed, seed));
    std::vector<std::string_view> views(texts.begin(), texts.end());
    const int threads = num_threads();
    for (const int count : {1, 2, 5}) {
        set_num_threads(count);
        const auto ids = tokenizer->encode_ids_batch(views, {.add_special_tokens = true});
        const auto encodings = tokenizer->encode_batch(views, {.add_special_tokens = true});
        ASSERT_EQ(ids.size(), texts.size());
        for (std::size_t i = 0; i < texts.size(); ++i) {
            EXPECT_EQ(ids[i], tokenizer->encode_ids(texts[i], {.add_special_tokens = true}));
            EXPECT_EQ(encodings[i].ids, ids[i]);
        }
    }
    // Of two bad texts the first is named, whichever thread comes first.
    views[40] = "ab\xFF";
    views[90] = "\xFF";
    for (int i = 0; i < 20; ++i) {
        try {
            tokenizer->encode_ids_batch(views, {});
            FAIL();
        } catch (const Error& error) {
            EXPECT_STREQ(error.what(), "the text is not valid UTF-8 at byte 2");
        }
    }
    set_num_threads(threads);
    EXPECT_TRUE(tokenizer->encode_batch({}, {}).empty());
}

}  // namespace
}  // namespace garam
