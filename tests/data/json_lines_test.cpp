#include "garam/data/json_lines.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/expect_error.h"
#include "testing/temp_dir.h"

namespace garam {
namespace {

using testing::TempDir;

std::vector<JsonLines::Line> all_lines(const std::filesystem::path& path,
                                       std::size_t max_lines = 1000,
                                       std::size_t max_bytes = 1 << 20) {
    JsonLines reader(path);
    std::vector<JsonLines::Line> lines;
    std::vector<JsonLines::Line> block;
    while (reader.next(block, max_lines, max_bytes))
        lines.insert(lines.end(), block.begin(), block.end());
    return lines;
}

TEST(JsonLines, PassesOverMarksCarriageReturnsAndBlankLines) {
    const TempDir dir;
    const auto file =
        dir.write("a.jsonl", "\xEF\xBB\xBF{\"a\":1}\r\n\r\n  \t\n{\"b\":2}\n\n\n{\"c\":3}");
    const auto lines = all_lines(file);
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_EQ(lines[0].text, "{\"a\":1}");
    EXPECT_EQ(lines[0].number, 1);
    EXPECT_EQ(lines[1].text, "{\"b\":2}");
    EXPECT_EQ(lines[1].number, 4);
    EXPECT_EQ(lines[2].text, "{\"c\":3}");
    EXPECT_EQ(lines[2].number, 7);
}

TEST(JsonLines, BlocksEndAtLinesOrBytesAndLoseNothing) {
    const TempDir dir;
    std::string content;
    for (int i = 0; i < 100; ++i)
        content += "line" + std::to_string(i) + "\n";
    const auto file = dir.write("a.jsonl", content);
    for (const std::size_t max_lines : {1u, 7u, 1000u}) {
        for (const std::size_t max_bytes : {1u, 20u, 100000u}) {
            const auto lines = all_lines(file, max_lines, max_bytes);
            ASSERT_EQ(lines.size(), 100u);
            for (int i = 0; i < 100; ++i) {
                EXPECT_EQ(lines[static_cast<std::size_t>(i)].text, "line" + std::to_string(i));
                EXPECT_EQ(lines[static_cast<std::size_t>(i)].number, i + 1);
            }
        }
    }
    JsonLines reader(file);
    std::vector<JsonLines::Line> block;
    ASSERT_TRUE(reader.next(block, 7, 1 << 20));
    EXPECT_EQ(block.size(), 7u);
    ASSERT_TRUE(reader.next(block, 1000, 11));
    EXPECT_EQ(block.size(), 3u);  // of 5 bytes each: the third one reaches 11
}

TEST(JsonLines, LinesLongerThanTheReadBuffer) {
    const TempDir dir;
    const std::string longer(700'001, 'x');
    const auto lines = all_lines(dir.write("a.jsonl", "a\n" + longer + "\nb\n"));
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_EQ(lines[1].text, longer);
    EXPECT_EQ(lines[2].text, "b");
}

TEST(JsonLines, EmptyFileHasNoLines) {
    const TempDir dir;
    EXPECT_TRUE(all_lines(dir.write("a.jsonl", "")).empty());
    EXPECT_TRUE(all_lines(dir.write("b.jsonl", "\xEF\xBB\xBF\n\n")).empty());
}

TEST(JsonLines, RefusesWhatIsNoSuchFile) {
    const TempDir dir;
    EXPECT_ERROR(JsonLines(dir / "none.jsonl"), "none.jsonl", "no such file");
    EXPECT_ERROR(JsonLines(dir.path()), "is a folder", ".jsonl");
    EXPECT_ERROR(JsonLines(dir.write("a.CSV", "a,b\n")), ".csv files are not supported", ".jsonl");
    EXPECT_ERROR(all_lines(dir.write("a.jsonl", "\xFF\xFE{")), "UTF-16", "UTF-8");
}

TEST(ParseRow, NamesFileLineAndColumn) {
    EXPECT_EQ(parse_row("{\"a\": 1}", "f.jsonl:3").at("a").integer(), 1);
    EXPECT_ERROR(parse_row("{\"a\": }", "f.jsonl:3"), "f.jsonl:3: ", "at column 7");
    EXPECT_ERROR(parse_row("[1]", "f.jsonl:3"), "f.jsonl:3: ", "not array", "line of its own");
    EXPECT_ERROR(parse_row("{", "f.jsonl:1"), "f.jsonl:1: ", "one whole object on each line");
    EXPECT_ERROR(parse_row("{\"a\": \"\xC3\x28\"}", "f.jsonl:3"), "f.jsonl:3: ");
    EXPECT_ERROR(parse_row("\"text\"", "f.jsonl:3"), "f.jsonl:3: ", "not string");
}

}  // namespace
}  // namespace garam
