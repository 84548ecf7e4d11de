#include "garam/text/pattern_scanner.h"

#include <gtest/gtest.h>

#include "garam/text/character_class.h"
#include "garam/text/pattern.h"
#include "garam/text/tokenizer_files.h"
#include "garam/text/unicode.h"

namespace garam {
namespace {

using Spans = std::vector<std::pair<std::size_t, std::size_t>>;

void append(const std::vector<ByteSpan>& found, std::size_t offset, Spans& out) {
    for (const ByteSpan span : found)
        out.emplace_back(offset + span.begin, offset + span.end);
}

Spans scanned(KnownPattern pattern, std::string_view text) {
    std::vector<ByteSpan> found;
    scan(pattern, text, found);
    Spans spans;
    append(found, 0, spans);
    return spans;
}

// What PCRE2 finds: for the numbers cut out first, in two steps.
class Reference {
  public:
    explicit Reference(KnownPattern pattern) : pattern_(pattern) {}

    Spans find(std::string_view text) const {
        Spans spans;
        std::vector<ByteSpan> found;
        if (pattern_ != KnownPattern::numbers_in_gpt2) {
            engine().find_all(text, found);
            append(found, 0, spans);
            return spans;
        }
        std::vector<ByteSpan> numbers;
        number_.find_all(text, numbers);
        numbers.push_back({text.size(), text.size()});
        std::size_t at = 0;
        for (const ByteSpan number : numbers) {
            found.clear();
            gpt2_.find_all(text.substr(at, number.begin - at), found);
            append(found, at, spans);
            if (number.begin < number.end) spans.emplace_back(number.begin, number.end);
            at = number.end;
        }
        return spans;
    }

  private:
    const Pattern& engine() const {
        switch (pattern_) {
            case KnownPattern::number:
                return number_;
            case KnownPattern::llama3:
                return llama3_;
            case KnownPattern::qwen2:
                return qwen2_;
            default:
                return gpt2_;
        }
    }

    KnownPattern pattern_;
    Pattern number_{"\\p{N}", "test", Pattern::Engine::pcre2};
    Pattern gpt2_{kGpt2Pattern, "test", Pattern::Engine::pcre2};
    Pattern llama3_{tokenizer_json::kLlama3Pattern, "test", Pattern::Engine::pcre2};
    Pattern qwen2_{tokenizer_json::kQwen2Pattern, "test", Pattern::Engine::pcre2};
};

class Random {  // splitmix64
  public:
    explicit Random(std::uint64_t seed) : state_(seed * 1000 + 1) {}
    std::size_t below(std::size_t limit) {
        std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        return (z ^ z >> 31) % limit;
    }

  private:
    std::uint64_t state_;
};

// Texts of what the patterns tell apart, close together; or of any characters at all.
std::string tricky_text(Random& random) {
    static const std::vector<std::string> kParts = {
        " ",      " ",      "  ",     "\n",     "\r",     "\t",     "\u00A0",    "\u3000",
        "\u2028", "\u0085", "\u180E", "\u200B", "'",      "'s",     "'S",        "'T",
        "'l",     "'Ll",    "'re",    "'vE",    "'m",     "'D",     "'\u017F",   "'\u212A",
        "a",      "Z",      "é",      "가",     "字",     "\u01C5", "\u02B0",    "0",
        "7",      "\u0664", "\u2167", "\u00BD", "!",      "_",      "-",         "😀",
        "🦙",   "\u0301", "\u20AC", "\u0378", "\u200D", "\u1F1E", "\U0001D7CE"};
    std::string text;
    for (std::size_t i = random.below(12) + 1; i > 0; --i) {
        if (random.below(8) == 0) {
            auto c = static_cast<char32_t>(random.below(random.below(2) == 0 ? 0x3000 : 0x110000));
            if (c >= 0xD800 && c < 0xE000) c = 0xAC00 + (c & 0xFF);
            append_utf8(text, c);
        } else {
            text += kParts[random.below(kParts.size())];
        }
    }
    return text;
}

TEST(PatternScanner, FindsWhatTheEngineFinds) {
    for (const KnownPattern pattern :
         {KnownPattern::number, KnownPattern::gpt2, KnownPattern::numbers_in_gpt2,
          KnownPattern::llama3, KnownPattern::qwen2}) {
        const Reference reference(pattern);
        Random random(static_cast<std::uint64_t>(pattern));
        for (int i = 0; i < 60'000; ++i) {
            const std::string text = tricky_text(random);
            ASSERT_EQ(scanned(pattern, text), reference.find(text))
                << "pattern " << static_cast<int>(pattern) << ": \"" << text << '"';
        }
    }
}

// Every character there is, in the places where its class matters.
TEST(PatternScanner, KnowsAllCharacters) {
    const Reference gpt2(KnownPattern::gpt2);
    const Reference llama3(KnownPattern::llama3);
    std::string text;
    for (char32_t c = 0; c < 0x110000; ++c) {
        if (c >= 0xD800 && c < 0xE000) continue;
        for (const char* before : {"a", "1", "!", "\n"}) {
            text += before;
            append_utf8(text, c);
        }
        if (text.size() < 1 << 16 && c < 0x10FFFF) continue;
        ASSERT_EQ(scanned(KnownPattern::gpt2, text), gpt2.find(text))
            << "up to " << static_cast<unsigned>(c);
        ASSERT_EQ(scanned(KnownPattern::llama3, text), llama3.find(text))
            << "up to " << static_cast<unsigned>(c);
        text.clear();
    }
}

TEST(PatternScanner, KnowsPatternsByTheirText) {
    EXPECT_EQ(known_pattern("\\p{N}"), KnownPattern::number);
    EXPECT_EQ(known_pattern(tokenizer_json::kLlama3Pattern), KnownPattern::llama3);
    EXPECT_EQ(known_pattern(tokenizer_json::kQwen2Pattern), KnownPattern::qwen2);
    EXPECT_EQ(known_pattern(kGpt2Pattern), KnownPattern::gpt2);
    EXPECT_EQ(known_pattern("\\p{N}+"), KnownPattern::none);
    EXPECT_EQ(known_pattern(std::string(tokenizer_json::kLlama3Pattern) + " "), KnownPattern::none);
}

TEST(CharacterClasses, SmallExamples) {
    const CharacterClasses& table = CharacterClasses::table();
    EXPECT_EQ(table.of(U'a'), kLetter);
    EXPECT_EQ(table.of(U'가'), kLetter);
    EXPECT_EQ(table.of(U'\u0664'), kNumber);
    EXPECT_EQ(table.of(U'½'), kNumber);
    EXPECT_EQ(table.of(U'\n'), kNewline);
    EXPECT_EQ(table.of(U'\v'), kSpace);
    EXPECT_EQ(table.of(U'\u3000'), kSpace);
    EXPECT_EQ(table.of(U'\u200B'), kOther);
    EXPECT_EQ(table.of(U'\u0301'), kOther);
    EXPECT_EQ(table.of(U'\U0010FFFF'), kOther);
    for (char32_t c = 0; c < 0x110000; ++c)
        ASSERT_EQ((table.of(c) & (kSpace | kNewline)) != 0, is_white_space(c))
            << static_cast<unsigned>(c);
}

// White space that ends in something else is looked at twice, not once a character.
TEST(PatternScanner, LongRunsAreLinear) {
    const std::string text = std::string(std::size_t{1} << 24, ' ') + "a";
    EXPECT_EQ(scanned(KnownPattern::llama3, text).size(), 2u);
    EXPECT_EQ(scanned(KnownPattern::gpt2, text).size(), 2u);
}

}  // namespace
}  // namespace garam
