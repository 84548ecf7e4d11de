#include "garam/data/sources/json_lines.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/expect_error.h"
#include "data/read_rows.h"
#include "garam/data/sources/line_reader.h"
#include "testing/temp_dir.h"

namespace garam {
namespace {

using testing::read_all;
using testing::TempDir;

TEST(JsonLines, PassesOverMarksCarriageReturnsAndBlankLines) {
    const TempDir dir;
    const auto file =
        dir.write("a.jsonl", "\xEF\xBB\xBF{\"a\":1}\r\n\r\n  \t\n{\"b\":2}\n\n\n{\"c\":3}");
    const auto rows = read_all(file);
    ASSERT_EQ(rows.texts(), (std::vector<std::string>{"{\"a\": 1}", "{\"b\": 2}", "{\"c\": 3}"}));
    EXPECT_EQ(rows.places[0], file.string() + ":1");
    EXPECT_EQ(rows.places[1], file.string() + ":4");
    EXPECT_EQ(rows.places[2], file.string() + ":7");
    EXPECT_EQ(rows.schema.format, "jsonl");
    EXPECT_TRUE(rows.schema.columns.empty());
}

TEST(JsonLines, LinesLongerThanTheReadBuffer) {
    const TempDir dir;
    const std::string longer(700'001, 'x');
    const auto file = dir.write("a.txt", "a\n" + longer + "\nb\n");
    LineReader reader(file);
    std::string text;
    ASSERT_TRUE(reader.append_next(text));
    ASSERT_TRUE(reader.append_next(text));
    EXPECT_EQ(text, "a" + longer);
    text.clear();
    ASSERT_TRUE(reader.append_next(text));
    EXPECT_EQ(text, "b");
    EXPECT_EQ(reader.number(), 3);
    EXPECT_FALSE(reader.append_next(text));
}

TEST(JsonLines, BatchesEndAtRowsOrBytesAndLoseNothing) {
    const TempDir dir;
    std::string many;
    for (int i = 0; i < 10000; ++i)
        many += "{\"i\": " + std::to_string(i) + "}\n";
    const auto few_bytes = read_all(dir.write("many.jsonl", many));
    ASSERT_EQ(few_bytes.rows.size(), 10000u);
    EXPECT_EQ(few_bytes.rows[9999].at("i").integer(), 9999);
    EXPECT_EQ(few_bytes.sizes, (std::vector<std::int64_t>{4096, 4096, 1808}));

    const std::string large = "{\"t\": \"" + std::string(9 << 20, 'x') + "\"}\n";
    EXPECT_EQ(read_all(dir.write("large.jsonl", large + large + large)).sizes,
              (std::vector<std::int64_t>{2, 1}));
}

TEST(JsonLines, EmptyFileHasNoRows) {
    const TempDir dir;
    EXPECT_TRUE(read_all(dir.write("a.jsonl", "")).rows.empty());
    EXPECT_TRUE(read_all(dir.write("b.jsonl", "\xEF\xBB\xBF\n\n")).rows.empty());
}

TEST(JsonLines, RefusesWhatIsNoSuchFile) {
    const TempDir dir;
    EXPECT_ERROR(read_all(dir / "none.jsonl"), "none.jsonl", "no such file");
    EXPECT_ERROR(read_all(dir.write("a.jsonl", "\xFF\xFE{")), "UTF-16", "UTF-8");
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
