#include "garam/data/samples/sample_view.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/byte_tokenizer.h"
#include "garam/core/token_batch.h"

namespace garam {
namespace {

using testing::ByteTokenizer;

constexpr std::int32_t kEos = ByteTokenizer::kFirstSpecial + 1;

Sample sample_of(const std::string& prompt, const std::string& answer) {
    const ByteTokenizer tokenizer;
    Sample sample;
    sample.ids = tokenizer.encode_ids(prompt, {});
    sample.labels.assign(sample.ids.size(), kIgnore);
    for (const std::int32_t id : tokenizer.encode_ids(answer, {})) {
        sample.ids.push_back(id);
        sample.labels.push_back(id);
    }
    return sample;
}

// [text] special {left out}, targets with * before them.
std::string drawn(const std::vector<SamplePiece>& pieces) {
    std::string text;
    for (const SamplePiece& piece : pieces) {
        if (piece.target) text += "*";
        if (piece.kind == SamplePiece::Kind::text) text += "[" + piece.text + "]";
        if (piece.kind == SamplePiece::Kind::special) text += piece.text;
        if (piece.kind == SamplePiece::Kind::left_out) text += "{" + piece.text + "}";
    }
    return text;
}

TEST(SampleView, PiecesEndWhereTargetsAndSpecialTokensDo) {
    const Sample sample = sample_of("<|im_start|>hi<|im_end|>", "yes<eos>");
    EXPECT_EQ(drawn(view_sample(sample, ByteTokenizer(), 100)),
              "<|im_start|>[hi]<|im_end|>*[yes]*<eos>");
}

TEST(SampleView, TheFirstTokenIsNeverATarget) {
    EXPECT_EQ(drawn(view_sample(sample_of("", "abc"), ByteTokenizer(), 100)), "[a]*[bc]");
}

TEST(SampleView, ACharacterCutByABorderShowsOnBothSides) {
    Sample sample = sample_of("", "a\xED\x95\x9C");
    sample.labels = {kIgnore, kIgnore, sample.ids[2], sample.ids[3]};
    EXPECT_EQ(drawn(view_sample(sample, ByteTokenizer(), 100)), "[a\uFFFD]*[\uFFFD\uFFFD]");
    sample.labels = {kIgnore, sample.ids[1], sample.ids[2], sample.ids[3]};
    EXPECT_EQ(drawn(view_sample(sample, ByteTokenizer(), 100)), "[a]*[한]");
}

TEST(SampleView, LongPiecesKeepBeginningAndEnd) {
    const std::string question(500, 'q');
    const std::string drawing =
        drawn(view_sample(sample_of("a" + question + "z", "yes<eos>"), ByteTokenizer(), 60));
    EXPECT_TRUE(drawing.starts_with("[aqqq")) << drawing;
    EXPECT_NE(drawing.find("characters}[qq"), std::string::npos) << drawing;
    EXPECT_TRUE(drawing.ends_with("qz]*[yes]*<eos>")) << drawing;
    EXPECT_LT(drawing.size(), 120u);
}

TEST(SampleView, OfManyTurnsTheMiddleIsLeftOut) {
    std::string talk;
    for (int i = 0; i < 100; ++i)
        talk += "<|im_start|>turn " + std::to_string(i) + "<|im_end|>";
    const std::string drawing =
        drawn(view_sample(sample_of(talk, "yes<eos>"), ByteTokenizer(), 100000));
    EXPECT_NE(drawing.find("[turn 0]"), std::string::npos);
    EXPECT_NE(drawing.find("[turn 99]"), std::string::npos);
    EXPECT_NE(drawing.find(" tokens}"), std::string::npos);
    EXPECT_EQ(drawing.find("[turn 50]"), std::string::npos);
}

TEST(SampleView, AHugeSampleIsNotDecodedWhole) {
    const std::string drawing =
        drawn(view_sample(sample_of(std::string(100000, 'q'), "yes<eos>"), ByteTokenizer(), 100));
    EXPECT_NE(drawing.find("{67,236 tokens}"), std::string::npos) << drawing;
    EXPECT_TRUE(drawing.ends_with("*[yes]*<eos>")) << drawing;
}

TEST(SampleView, ControlsAreEscaped) {
    EXPECT_EQ(escape_controls("a\x1b[31m\a\tb\nc\r"), "a\\x1B[31m\\x07\\tb\\nc\\r");
    EXPECT_EQ(escape_controls("a\nb", true), "a\nb");
    EXPECT_EQ(escape_controls("a\u202Eb\u200Bc\uFEFF"), "a\\u202Eb\\u200Bc\\uFEFF");
    EXPECT_EQ(escape_controls("\u009B31m"), "\\u009B31m");
    EXPECT_EQ(escape_controls("\xFF"), "\uFFFD");
    EXPECT_EQ(escape_controls("한글 é 🙂"), "한글 é 🙂");
}

TEST(SampleView, Shortened) {
    EXPECT_EQ(shortened("한글은 좋다", 3), "한글은…");
    EXPECT_EQ(shortened("abc", 3), "abc");
    EXPECT_EQ(shortened("a\nbc", 3), "a\\n…");
}

TEST(SampleView, Width) {
    EXPECT_EQ(display_width("abc"), 3u);
    EXPECT_EQ(display_width("한글"), 4u);
    EXPECT_EQ(display_width("e\u0301"), 1u);
    EXPECT_EQ(display_width("🙂"), 2u);
}

TEST(SampleView, Numbers) {
    EXPECT_EQ(grouped_digits(0), "0");
    EXPECT_EQ(grouped_digits(999), "999");
    EXPECT_EQ(grouped_digits(1234567), "1,234,567");
    EXPECT_EQ(grouped_digits(-1234), "-1,234");
    EXPECT_EQ(grouped_digits(-123), "-123");
    EXPECT_EQ(counted(1, "row"), "1 row");
    EXPECT_EQ(percent(0), "0 %");
    EXPECT_EQ(percent(0.00001), "<0.01 %");
    EXPECT_EQ(percent(0.0012), "0.12 %");
    EXPECT_EQ(percent(0.1234), "12.3 %");
}

}  // namespace
}  // namespace garam
