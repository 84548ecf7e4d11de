// Arrow and Parquet files, and folders as `datasets` writes them.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "data/expect_error.h"
#include "data/read_rows.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam {
namespace {

namespace fs = std::filesystem;
using testing::read_all;
using testing::TempDir;

fs::path file(const char* name) {
    return testing::source_dir() / "tests" / "data" / "files" / name;
}

constexpr const char* kFirstRow =
    R"({"text": "가람 river", "large": "quick \\ 오늘은 \u0000", "bool": true, "i8": -8, "u16": 65535, )"
    R"("i64": -4611686018427387904, "u64": 9223372036854775807, "half": 0.5, "float": 0.25, )"
    R"("double": 1e+300, "word": "again", "list": [1, null, 3], "large_list": ["a", ""], )"
    R"("pair": [1.0, 2.0], "chat": [{"role": "user", "content": "hi"}, )"
    R"({"role": "assistant", "content": null}], "map": {"k": 1}, "none": null, )"
    R"("date": "2024-02-29", "time": "1969-12-31T23:59:59.250000", )"
    R"("zoned": "2024-01-02T03:04:05+00:00", "price": "12.50", "label": "spam"})";

class TablesOfTypes : public ::testing::TestWithParam<const char*> {};

TEST_P(TablesOfTypes, GiveEveryTypeAndNull) {
    const auto all = read_all(file(GetParam()));
    ASSERT_EQ(all.rows.size(), 2u);
    EXPECT_EQ(all.rows[0].dump(), kFirstRow);
    for (const auto& [name, value] : all.rows[1].object())
        EXPECT_TRUE(value.is_null()) << name;
    EXPECT_EQ(all.places[1], file(GetParam()).string() + ", row 1");
    ASSERT_EQ(all.schema.columns.size(), 22u);
    EXPECT_EQ(all.schema.columns[0].type, "string");
    EXPECT_EQ(all.schema.columns[1].type, "string");
    EXPECT_EQ(all.schema.columns[14].type, "list<struct<role: string, content: string>>");
    EXPECT_EQ(all.schema.columns[21].class_names, (std::vector<std::string>{"ham", "spam"}));
}

TEST_P(TablesOfTypes, GiveOnlyTheColumnsAskedFor) {
    RowSourceOptions options;
    options.only_columns = {"chat", "text", "no such column"};
    const auto all = read_all(file(GetParam()), options);
    ASSERT_EQ(all.schema.columns.size(), 2u);
    EXPECT_EQ(all.rows[0].dump(),
              R"({"text": "가람 river", "chat": [{"role": "user", "content": "hi"}, )"
              R"({"role": "assistant", "content": null}]})");
    options.only_columns = {"none such"};
    EXPECT_ERROR(read_all(file(GetParam()), options), GetParam(), "none such");
}

// What a damaged file gives is rows or an Error that names it.
void read_damaged(const TempDir& dir, const char* name, const std::string& bytes) {
    const fs::path path = dir.write(name, bytes);
    try {
        const auto source = open_rows(path.string());
        while (const auto batch = source->next()) {
            for (std::int64_t i = 0; i < batch->size(); ++i) {
                try {
                    batch->row(i);
                } catch (const Error& error) {
                    testing::expect_parts(error.what(), {name});
                }
            }
        }
    } catch (const Error& error) {
        testing::expect_parts(error.what(), {name});
    }
}

TEST_P(TablesOfTypes, TruncatedOrDamagedAreErrorsThatNameThem) {
    const TempDir dir;
    const std::string whole = testing::read_file(file(GetParam()));
    const std::size_t step = whole.size() / 150 + 1;
    for (std::size_t cut = 0; cut < whole.size(); cut += step)
        read_damaged(dir, GetParam(), whole.substr(0, cut));
    for (std::size_t at = 0; at < whole.size(); at += step) {
        for (const char changed : {'\xFF', '\0', '\x7F'}) {
            std::string damaged = whole;
            damaged[at] = changed;
            read_damaged(dir, GetParam(), damaged);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, TablesOfTypes,
                         ::testing::Values("types.arrow", "types_zstd.arrow", "types_file.arrow",
                                           "types.parquet"));

// A packed buffer says how large it is unpacked, and memory is taken by that.
TEST(Tables, SizesBeyondWhatASmallFileUnpacksToAreRefused) {
    const TempDir dir;
    std::string bytes = testing::read_file(file("types_zstd.arrow"));
    const std::size_t frame = bytes.find("\x28\xB5\x2F\xFD");
    ASSERT_NE(frame, std::string::npos);
    const std::int64_t declared = 1'700'000'000;
    std::memcpy(bytes.data() + frame - sizeof declared, &declared, sizeof declared);
    EXPECT_ERROR(read_all(dir.write("large.arrow", bytes)), "large.arrow", "cap exceeded",
                 "1700000000");
}

// Lists of nulls have no bytes, and what is there once may be told many times.
TEST(Tables, RowsBeyondWhatASmallFileHoldsAreRefused) {
    for (const char* name : {"nulls.arrow", "words.arrow", "text_views.arrow"})
        EXPECT_ERROR(read_all(file(name)), name, "row 0", "\"list\" is larger than", "MiB");
    EXPECT_ERROR(read_all(file("back.arrow")), "back.arrow", "\"list\"", "offsets that go back");
}

// Thrift makes a list as long as it says before it reads it.
TEST(Tables, ListsBeyondTheFileAreRefused) {
    const TempDir dir;
    std::string bytes = testing::read_file(file("three.parquet"));
    std::uint32_t length = 0;
    std::memcpy(&length, &bytes[bytes.size() - 8], sizeof length);
    // version, then the schema as a list of 3, which says a million now.
    const std::size_t list = bytes.size() - 8 - length + 3;
    ASSERT_EQ(bytes.substr(list - 3, 4), "\x15\x04\x19\x3C");
    bytes.replace(list, 1, "\xFC\xC0\x84\x3D");
    length += 3;
    std::memcpy(&bytes[bytes.size() - 8], &length, sizeof length);
    EXPECT_ERROR(read_all(dir.write("long.parquet", bytes)), "long.parquet", "size limit");
}

TEST(Tables, CutFilesDoNotEndEarlyInSilence) {
    const TempDir dir;
    for (const char* name : {"three.arrow", "three.parquet"}) {
        const std::string whole = testing::read_file(file(name));
        EXPECT_ERROR(read_all(dir.write(name, whole.substr(0, whole.size() - 60))), name);
    }
    const std::string whole = testing::read_file(file("three.arrow"));
    EXPECT_ERROR(read_all(dir.write("cut.arrow", whole.substr(0, whole.size() - 8))), "cut.arrow",
                 "truncated");
    EXPECT_ERROR(read_all(dir.write("empty.arrow", "")), "empty.arrow", "empty");
    EXPECT_ERROR(read_all(dir.write("empty.parquet", "")), "empty.parquet", "empty");
}

TEST(Tables, TextsInViews) {
    EXPECT_EQ(read_all(file("views.arrow")).texts(),
              (std::vector<std::string>{R"({"text": "short"})", R"({"text": null})",
                                        R"({"text": "longer than twelve bytes"})"}));
}

TEST(Tables, BytesAreRefusedUnlessLeftOut) {
    EXPECT_EQ(open_rows(file("bytes.arrow").string())->schema().columns[1].type, "binary");
    EXPECT_ERROR(read_all(file("bytes.arrow")), "bytes.arrow", "\"image\"", "bytes");
    RowSourceOptions options;
    options.only_columns = {"text"};
    EXPECT_EQ(read_all(file("bytes.arrow"), options).rows.size(), 1u);
}

TEST(Tables, ContentTellsWhatTheNameDoesNot) {
    const TempDir dir;
    for (const char* name : {"three.arrow", "three.parquet"}) {
        fs::copy(file(name), dir / "table");
        EXPECT_EQ(read_all(dir / "table").rows.size(), 3u);
        fs::remove(dir / "table");
    }
}

TEST(Tables, SlicesAcrossBatches) {
    for (const char* name : {"three.arrow", "three.parquet"}) {
        RowSourceOptions options;
        options.split = "[1:]";
        EXPECT_EQ(read_all(file(name), options).numbers("i"), (std::vector<std::int64_t>{1, 2}));
        options.split = "train[-1:]+train[:34%]";
        EXPECT_EQ(read_all(file(name), options).numbers("i"), (std::vector<std::int64_t>{2, 0}));
    }
}

// A Dataset with two data files, as save_to_disk writes it; `more` goes into its state.
void save_data_set(const fs::path& folder, const std::string& more = "") {
    fs::create_directories(folder);
    fs::copy(file("three.arrow"), folder / "data-00000-of-00002.arrow");
    fs::copy(file("three.arrow"), folder / "data-00001-of-00002.arrow");
    fs::copy(file("types.arrow"), folder / "cache-1234.arrow");
    std::ofstream(folder / "state.json")
        << R"({"_data_files": [{"filename": "data-00000-of-00002.arrow"}, )"
           R"({"filename": "data-00001-of-00002.arrow"}], "_split": null)"
        << more << "}";
    std::ofstream(folder / "dataset_info.json")
        << R"({"features": {"i": {"names": ["a", "b", "c"], "_type": "ClassLabel"}}})";
}

TEST(SavedDataSets, HaveTheFilesThatTheirStateNames) {
    const TempDir dir;
    save_data_set(dir / "set");
    const auto all = read_all(dir / "set");
    EXPECT_EQ(all.files.size(), 2u);
    ASSERT_EQ(all.rows.size(), 6u);
    EXPECT_EQ(all.rows[4].dump(), R"({"i": "b", "text": "b"})");
    EXPECT_EQ(all.places[4], (dir / "set").string() + "/data-00001-of-00002.arrow, row 1");
    EXPECT_EQ(all.sizes.size(), 1u);  // small batches are joined

    fs::remove(dir / "set" / "data-00001-of-00002.arrow");
    EXPECT_ERROR(read_all(dir / "set"), "data-00001-of-00002.arrow", "missing", "state.json");
    std::ofstream(dir / "set" / "state.json") << R"({"_data_files": [{"filename": "../x"}]})";
    EXPECT_ERROR(read_all(dir / "set"), "state.json", "../x");
}

TEST(SavedDataSets, HaveSplits) {
    const TempDir dir;
    save_data_set(dir / "dict" / "train");
    save_data_set(dir / "dict" / "test");
    for (const bool has_list : {false, true}) {
        if (has_list)
            std::ofstream(dir / "dict" / "dataset_dict.json") << R"({"splits": ["train", "test"]})";
        EXPECT_ERROR(read_all(dir / "dict"), "train", "test", "data.train_split");
        RowSourceOptions options;
        options.split = "test[:2]+train";
        EXPECT_EQ(read_all(dir / "dict", options).rows.size(), 8u);
        options.split = "validation";
        EXPECT_ERROR(read_all(dir / "dict", options), "no split \"validation\"", "train");
    }
}

TEST(SavedDataSets, SelectionsFollowTheirRowNumbers) {
    const TempDir dir;
    const auto numbers = [&](const char* table) {
        fs::remove_all(dir / "set");
        save_data_set(dir / "set", R"(, "_indices_data_files": [{"filename": "indices.arrow"}])");
        fs::copy(file(table), dir / "set" / "indices.arrow");
        return read_all(dir / "set");
    };
    const auto all = numbers("indices.arrow");
    ASSERT_EQ(all.rows.size(), 4u);
    EXPECT_EQ(all.rows[0].dump(), R"({"i": "c", "text": "c"})");
    EXPECT_EQ(all.places[0], (dir / "set").string() + "/data-00001-of-00002.arrow, row 2");
    EXPECT_EQ(all.rows[1].dump(), R"({"i": "a", "text": "a"})");
    EXPECT_ERROR(numbers("bad_indices.arrow"), "indices.arrow", "row 6 of 6");
    EXPECT_ERROR(numbers("three.arrow"), "indices.arrow", "one column");
}

TEST(RealTables, YoutubeComments) {
    GARAM_REQUIRE_DATA("arrow/youtube-comments/data");
    const fs::path folder = testing::data_dir() / "arrow" / "youtube-comments" / "data";
    RowSourceOptions options;
    options.split = "train";
    const auto train = read_all(folder, options);
    options.split = "test";
    const auto test = read_all(folder, options);
    EXPECT_GT(train.rows.size(), 4 * test.rows.size());
    for (const auto* part : {&train, &test})
        for (const Json& row : part->rows)
            ASSERT_FALSE(row.at("example").string().empty());
    options.split = "train+test";
    EXPECT_EQ(read_all(folder, options).rows.size(), train.rows.size() + test.rows.size());
}

TEST(RealTables, RickHasListsOfNumbers) {
    GARAM_REQUIRE_DATA("arrow/rick");
    RowSourceOptions options;
    options.split = "val";
    const auto all = read_all(testing::data_dir() / "arrow" / "rick", options);
    ASSERT_FALSE(all.rows.empty());
    EXPECT_EQ(all.schema.columns[0].type, "list<int32>");
    for (const auto& [name, value] : all.rows[0].object())
        EXPECT_TRUE(value.array()[0].is_int()) << name;
}

}  // namespace
}  // namespace garam
