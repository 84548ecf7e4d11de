#include "garam/text/unicode.h"

#include <gtest/gtest.h>

#include "garam/text/unicode_normal_form.h"
#include "toy_tokenizer.h"

namespace garam {
namespace {

TEST(Unicode, InvalidBytesAreFound) {
    EXPECT_EQ(first_invalid_utf8("가나 \xF0\x9F\xA6\x99 z"), std::string::npos);
    const std::pair<std::string, std::size_t> cases[] = {
        {"a\x80", 1},              // a continuation alone
        {"ab\xC0\xAF", 2},         // overlong
        {"\xE0\x9F\xBF", 0},       // overlong
        {"\xED\xA0\x80", 0},       // a surrogate
        {"x\xF4\x90\x80\x80", 1},  // above U+10FFFF
        {"x\xE2\x82", 1},          // cut off
        {"\xFF", 0}};
    for (const auto& [text, at] : cases)
        EXPECT_EQ(first_invalid_utf8(text), at);
}

TEST(Unicode, MaximalSubpartsAreReplaced) {
    // The example of the Unicode standard (section 3.9, table 3-8).
    EXPECT_EQ(replace_invalid_utf8("a\xF1\x80\x80\xE1\x80\xC2"
                                   "b\x80"
                                   "c\x80\xBF"
                                   "d"),
              "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
}

TEST(Unicode, CodePointsRoundTrip) {
    for (char32_t c = 0; c < 0x110000; c += 7) {
        if (c >= 0xD800 && c < 0xE000) continue;
        std::string text;
        append_utf8(text, c);
        std::size_t at = 0;
        EXPECT_EQ(utf8_length(text[0]), text.size());
        EXPECT_EQ(next_code_point(text, at), c);
        EXPECT_EQ(at, text.size());
        EXPECT_EQ(first_invalid_utf8(text), std::string::npos);
    }
}

std::string normal(std::string_view text, NormalForm form) {
    return normal_form(AlignedText(text, 0), form).text();
}

TEST(NormalForm, KnownForms) {
    const NormalForm nfc{true, false};
    EXPECT_EQ(normal("e\u0301", nfc), "\u00E9");
    EXPECT_EQ(normal("\u1112\u1161\u11AB", nfc), "\uD55C");  // conjoining jamo
    EXPECT_EQ(normal("\uD558\u11AB", nfc), "\uD55C");        // a syllable and its last jamo
    EXPECT_EQ(normal("a\u0323\u0307", nfc), "\u1EA1\u0307");
    EXPECT_EQ(normal("a\u0307\u0323", nfc), "\u1EA1\u0307");  // marks in canonical order
    EXPECT_EQ(normal("\u212B", nfc), "\u00C5");               // Angstrom
    EXPECT_EQ(normal("\u0958", nfc), "\u0915\u093C");         // excluded from composition
    EXPECT_EQ(normal("\uFB01", nfc), "\uFB01");
    EXPECT_EQ(normal("\uFB01", {true, true}), "fi");
    EXPECT_EQ(normal("\u3131", {true, true}), "\u1100");
    EXPECT_EQ(normal("\u00E9", {false, false}), "e\u0301");
    EXPECT_EQ(normal("\u1EA1\u0307", {false, false}), "a\u0323\u0307");
}

TEST(NormalForm, BytesKnowWhereTheyCameFrom) {
    //                        0 1 2..3    4     5..7
    const std::string text =
        "xe\u0301"
        "y\uFB01";
    const AlignedText composed = normal_form(AlignedText(text, 10), {true, false});
    ASSERT_EQ(composed.text(), "x\u00E9y\uFB01");
    const auto source = [&](std::size_t begin, std::size_t end) {
        const ByteSpan span = composed.source(begin, end);
        return std::pair(span.begin, span.end);
    };
    EXPECT_EQ(source(0, 1), std::pair(std::size_t{10}, std::size_t{11}));
    EXPECT_EQ(source(1, 3), std::pair(std::size_t{11}, std::size_t{14}));
    EXPECT_EQ(source(1, 2),
              std::pair(std::size_t{11}, std::size_t{14}));  // half of what was joined
    EXPECT_EQ(source(3, 4), std::pair(std::size_t{14}, std::size_t{15}));
    EXPECT_EQ(source(5, 6),
              std::pair(std::size_t{16}, std::size_t{17}));  // unchanged: byte by byte
}

TEST(NormalForm, IsStableAndCoversTheText) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        const std::string text = testing::random_text(seed, 60);
        for (const NormalForm form : {NormalForm{true, false}, NormalForm{false, false},
                                      NormalForm{true, true}, NormalForm{false, true}}) {
            const AlignedText once = normal_form(AlignedText(text, 0), form);
            EXPECT_EQ(normal(once.text(), form), once.text());
            std::size_t covered = 0;
            for (std::size_t i = 0; i < once.text().size(); ++i) {
                EXPECT_LE(once.source(i, i + 1).begin, covered);
                covered = std::max(covered, once.source(i, i + 1).end);
            }
            EXPECT_EQ(covered, text.size());
        }
    }
}

// Marks in falling order are the worst case of sorting by insertion.
TEST(NormalForm, ManyMarksAreNotQuadratic) {
    std::string text = "a";
    for (int i = 0; i < 200'000; ++i)
        text += i < 100'000 ? "\u0345" : "\u0334";
    const std::string out = normal(text, {true, false});
    EXPECT_EQ(out.size(), text.size());
    EXPECT_EQ(out.substr(0, 3), "a\u0334");
}

TEST(Unicode, MarksThatChangedTheirClassStayWhatTheReferenceTakesThemFor) {
    EXPECT_TRUE(is_mark(0x1CF2) && is_mark(0x1CF3));
    EXPECT_TRUE(is_nonspacing_mark(0x1734));
    for (const char32_t letter : {0x1885, 0x1886, 0xA9BD})
        EXPECT_FALSE(is_nonspacing_mark(letter)) << static_cast<std::uint32_t>(letter);
    EXPECT_TRUE(is_mark(0x301) && is_nonspacing_mark(0x301));
    EXPECT_TRUE(is_mark(0x1885) && is_mark(0xA9BD));
    EXPECT_FALSE(is_mark('a'));
}

}  // namespace
}  // namespace garam
