// Text formats, packed files, folders, patterns and slices.
#include "garam/data/sources/row_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "data/expect_error.h"
#include "data/packed.h"
#include "data/read_rows.h"
#include "garam/data/sources/csv_parser.h"
#include "garam/data/sources/split_names.h"
#include "garam/data/sources/split_slice.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam {
namespace {

namespace fs = std::filesystem;
using testing::gzip;
using testing::read_all;
using testing::TempDir;
using testing::zstd;
using Texts = std::vector<std::string>;

// ---- CSV ----

TEST(Csv, QuotesNewlinesAndMissingValues) {
    const TempDir dir;
    const auto all =
        read_all(dir.write("a.csv",
                           "\xEF\xBB\xBFtext,label\r\n\"a, \"\"b\"\"\r\nc\",1\r\n\r\nsay "
                           "\"hi\",\n\"\",x\n\"q\"z,007"));
    EXPECT_EQ(all.texts(),
              (Texts{R"({"text": "a, \"b\"\r\nc", "label": "1"})",
                     R"({"text": "say \"hi\"", "label": null})", R"({"text": "", "label": "x"})",
                     R"({"text": "qz", "label": "007"})"}));
    EXPECT_EQ(all.places[0], (dir / "a.csv").string() + ":2");
    EXPECT_EQ(all.places[1], (dir / "a.csv").string() + ":5");
    EXPECT_EQ(all.schema.format, "csv");
    EXPECT_EQ(all.schema.columns[1].name, "label");
}

TEST(Csv, DelimiterIsFoundFromTheHead) {
    const TempDir dir;
    for (const char delimiter : {',', ';', '\t', '|'}) {
        std::string text = "a!b\n1: 2 and 3!c d\n\"x!y\"!z\n";
        std::replace(text.begin(), text.end(), '!', delimiter);
        text += delimiter == ',' ? "1;2|3,4\n" : std::string("1,2,3") + delimiter + "4\n";
        const auto all = read_all(dir.write("a.csv", text));
        ASSERT_EQ(all.rows.size(), 3u) << delimiter;
        EXPECT_EQ(all.rows[1].at("b").string(), "z") << delimiter;
    }
    EXPECT_EQ(read_all(dir.write("one.csv", "text\nhello\nbye\n")).rows.size(), 2u);
}

TEST(Csv, RaggedRowsAndOpenQuotesNameTheLine) {
    const TempDir dir;
    const auto source = open_rows(dir.write("a.csv", "a,b\n1,2\n1,2,3\n4\n").string());
    const auto batch = source->next();
    ASSERT_EQ(batch->size(), 3);
    EXPECT_EQ(batch->row(0).at("b").string(), "2");
    EXPECT_ERROR(batch->row(1), "a.csv:3: ", "3 fields", "2 columns");
    EXPECT_ERROR(batch->row(2), "a.csv:4: ", "1 fields");
    EXPECT_ERROR(read_all(dir.write("b.csv", "a,b\n1,2\n\"1,2\n3,4\n")), "b.csv:3: ", "quote");
    EXPECT_ERROR(read_all(dir.write("c.csv", "a,b\n\xB0\xA1,2\n")), "c.csv:2: ", "UTF-8", "iconv");
    EXPECT_ERROR(read_all(dir.write("d.csv", "a,a\n1,2\n")), "d.csv", "\"a\"");
    EXPECT_ERROR(read_all(dir.write("e.csv", "")), "e.csv", "empty");
}

TEST(Csv, FilesWithoutAHeadAndWithoutQuotes) {
    const TempDir dir;
    RowSourceOptions options;
    options.format = "tsv";
    options.csv_columns = {"label", "text"};
    options.csv_quote = '\0';
    const auto all = read_all(dir.write("SMS", "ham\t\"open\nspam\tit's \"\"\r\n"), options);
    EXPECT_EQ(all.texts(), (Texts{R"({"label": "ham", "text": "\"open"})",
                                  R"({"label": "spam", "text": "it's \"\""})"}));
    options = {};
    options.csv_header = false;
    EXPECT_EQ(read_all(dir.write("a.csv", "x,y\n"), options).texts(),
              (Texts{R"({"0": "x", "1": "y"})"}));
}

TEST(Csv, FieldsAcrossReads) {
    const TempDir dir;
    std::string text = "a,b\n";
    for (int i = 0; i < 60000; ++i)
        text += "\"" + std::to_string(i) + " \"\"x\"\"\n\"," + std::to_string(i) + "\r\n";
    const auto all = read_all(dir.write("a.csv", text));
    ASSERT_EQ(all.rows.size(), 60000u);
    for (std::size_t i = 0; i < all.rows.size(); ++i) {
        ASSERT_EQ(all.rows[i].at("a").string(), std::to_string(i) + " \"x\"\n");
        ASSERT_EQ(all.rows[i].at("b").string(), std::to_string(i));
    }
}

// ---- JSON ----

TEST(JsonDocuments, ListsObjectsWithAListAndColumns) {
    const TempDir dir;
    const Texts expected = {R"({"a": 1, "t": "]}\"["})", R"({"a": 2, "t": "x"})"};
    const std::string list = "[\n {\"a\": 1, \"t\": \"]}\\\"[\"},\n {\"a\": 2, \"t\": \"x\"}]\n";
    const auto all = read_all(dir.write("a.json", list));
    EXPECT_EQ(all.texts(), expected);
    EXPECT_EQ(all.places[1], (dir / "a.json").string() + ":3");
    EXPECT_EQ(read_all(dir.write("b.json",
                                 "{\"version\": {\"x\": []}, \"data\": " + list + ", \"n\": 3}"))
                  .texts(),
              expected);
    EXPECT_EQ(read_all(dir.write("c.json", "{\"a\": [1, 2], \"t\": [\"]}\\\"[\", \"x\"]}")).texts(),
              expected);
    EXPECT_EQ(read_all(dir.write("d.json", expected[0] + "\n" + expected[1] + "\n")).texts(),
              expected);
    EXPECT_TRUE(read_all(dir.write("e.json", " [ ] ")).rows.empty());
}

TEST(JsonDocuments, WhatIsWrongNamesFileAndLine) {
    const TempDir dir;
    const auto refused = [&](const char* text, auto... parts) {
        EXPECT_ERROR(read_all(dir.write("a.json", text)), "a.json", parts...);
    };
    refused("[{\"a\": 1},\n{\"a\": 2", ":2", "ends within");
    refused("[{\"a\": 1}\n", ":2", "comma");
    refused("[{\"a\": 1},\n]", "last comma");
    refused("[{\"a\": 1}] x", "follows");
    refused("[{\"a\": 1},\n{\"a\" 2}]", ":2", "not valid JSON");
    refused("[{\"a\": 1}, 2]", "not number");
    refused("{\"a\": [1, 2], \"b\": [1]}", "\"b\"", "1 values");
    refused("{\"a\": [{}], \"b\": [{}]}", "\"b\"", "another list");
    refused("{\"a\": 1}", "no list");
    refused("", "empty");
    refused("12", "no JSON list");
}

TEST(JsonDocuments, LargeListsStream) {
    const TempDir dir;
    std::string text = "[";
    for (int i = 0; i < 20000; ++i)
        text += (i > 0 ? "," : "") + std::string("{\"i\": ") + std::to_string(i) + ", \"t\": \"" +
                std::string(static_cast<std::size_t>(i % 97), '\\') +
                (i % 97 % 2 == 1 ? "\\" : "") + "\"}";
    const auto all = read_all(dir.write("a.json", text + "]"));
    ASSERT_EQ(all.rows.size(), 20000u);
    EXPECT_GT(all.sizes.size(), 4u);
    EXPECT_EQ(all.rows[19999].at("i").integer(), 19999);
}

// ---- plain text ----

TEST(PlainText, LinesParagraphsAndDocuments) {
    const TempDir dir;
    const auto file = dir.write("a.txt", "one\r\ntwo\n\n \n\nthree\n");
    EXPECT_EQ(read_all(file).texts(),
              (Texts{R"({"text": "one"})", R"({"text": "two"})", R"({"text": ""})",
                     R"({"text": " "})", R"({"text": ""})", R"({"text": "three"})"}));
    RowSourceOptions options;
    options.text_unit = "paragraph";
    const auto paragraphs = read_all(file, options);
    EXPECT_EQ(paragraphs.texts(), (Texts{R"({"text": "one\ntwo"})", R"({"text": "three"})"}));
    EXPECT_EQ(paragraphs.places[1], file.string() + ":6");
    options.text_unit = "document";
    EXPECT_EQ(read_all(file, options).texts(), (Texts{R"({"text": "one\ntwo\n\n \n\nthree\n"})"}));
    options.text_unit = "page";
    EXPECT_ERROR(read_all(file, options), "data.text_unit");
}

TEST(PlainText, ParallelFilesAreColumns) {
    const TempDir dir;
    std::string english;
    std::string german;
    for (int i = 0; i < 9000; ++i) {
        english += "line " + std::to_string(i) + "\n";
        german +=
            "Zeile " + std::to_string(i) + std::string(static_cast<std::size_t>(i), '.') + "\n";
    }
    const std::string en = dir.write("a.en", english).string();
    const std::string de = dir.write("a.de.gz", gzip(german)).string();
    const auto all = read_all(*open_columns({de, en}, {"de", "en"}));
    ASSERT_EQ(all.rows.size(), 9000u);
    EXPECT_EQ(all.rows[8999].at("en").string(), "line 8999");
    EXPECT_TRUE(all.rows[8999].at("de").string().starts_with("Zeile 8999."));
    EXPECT_EQ(all.files.size(), 2u);
    const std::string shorter = dir.write("b.en", english.substr(0, english.size() - 10)).string();
    EXPECT_ERROR(read_all(*open_columns({de, shorter}, {"de", "en"})), "b.en", "8999");
    EXPECT_ERROR(read_all(*open_columns({de}, {"de", "en"})), "data.zip");
}

// ---- packed files ----

TEST(PackedFiles, GzipAndZstandard) {
    const TempDir dir;
    std::string text;
    for (int i = 0; i < 30000; ++i)
        text += "{\"i\": " + std::to_string(i) + "}\n";
    const std::string half = text.substr(0, text.size() / 2);
    const std::string rest = text.substr(half.size());
    for (const auto& [name, packed] : std::vector<std::pair<const char*, std::string>>{
             {"a.jsonl.gz", gzip(text)},
             {"b.jsonl.gz", gzip(half) + gzip("") + gzip(rest) + std::string(512, '\0')},
             {"a.jsonl.zst", zstd(text)},
             {"b.jsonl.zst", zstd(half) + zstd(rest)},
             {"c.jsonl", gzip(text)}}) {
        const auto all = read_all(dir.write(name, packed));
        ASSERT_EQ(all.rows.size(), 30000u) << name;
        EXPECT_EQ(all.rows[29999].at("i").integer(), 29999);
    }
    EXPECT_ERROR(read_all(dir.write("d.jsonl.gz", "{}\n")), "d.jsonl.gz", "not a gzip");
    EXPECT_ERROR(read_all(dir.write("d.jsonl.zst", "")), "d.jsonl.zst", "empty");
    EXPECT_ERROR(read_all(dir.write("e.jsonl.gz", gzip("{}\n") + "tail")), "e.jsonl.gz");
}

TEST(PackedFiles, EveryCutIsAnError) {
    const TempDir dir;
    const std::string text = "{\"text\": \"one two three\"}\n{\"text\": \"four\"}\n";
    for (const bool is_gzip : {true, false}) {
        const std::string packed = is_gzip ? gzip(text) : zstd(text);
        const char* const name = is_gzip ? "a.jsonl.gz" : "a.jsonl.zst";
        for (std::size_t cut = 0; cut < packed.size(); ++cut)
            EXPECT_ERROR(read_all(dir.write(name, packed.substr(0, cut))), name);
        for (std::size_t at = 0; at < packed.size(); ++at) {
            std::string damaged = packed;
            damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
            try {
                read_all(dir.write(name, damaged));
            } catch (const Error& error) {
                testing::expect_parts(error.what(), {name});
            }
        }
    }
}

// ---- slices ----

TEST(SplitSlices, CountAsDatasetsDoes) {
    const auto range = [](const char* text, std::int64_t rows) {
        const RowRange found = resolve(parse_split(text)[0], rows);
        return std::vector<std::int64_t>{found.begin, found.end};
    };
    using Range = std::vector<std::int64_t>;
    EXPECT_EQ(range("train[:90%]", 5), (Range{0, 4}));     // round(4.5) is even
    EXPECT_EQ(range("train[90%:]", 15), (Range{14, 15}));  // round(13.5)
    EXPECT_EQ(range("[100:200]", 150), (Range{100, 150}));
    EXPECT_EQ(range("[-3:]", 10), (Range{7, 10}));
    EXPECT_EQ(range("[:-3]", 10), (Range{0, 7}));
    EXPECT_EQ(range("[-10%:]", 101), (Range{91, 101}));
    EXPECT_EQ(range("[5:2]", 10), (Range{5, 5}));
    EXPECT_EQ(range("train[:1_0]", 20), (Range{0, 10}));
    EXPECT_EQ(range("train[50%:52%](pct1_dropremainder)", 999), (Range{450, 468}));
    const auto sum = parse_split(" train[:10] + test ");
    ASSERT_EQ(sum.size(), 2u);
    EXPECT_EQ(sum[1].split, "test");
    EXPECT_TRUE(sum[1].is_whole());
    for (const char* bad : {"train[5]", "train[:x]", "train[:101%]", "train[", "a b", "train+",
                            "train[:1%:2]", "train[99999999999999999999:]", "[1:50%]"})
        EXPECT_ERROR(parse_split(bad), bad, "train[:90%]");
}

TEST(SplitSlices, TakeRowsAcrossFiles) {
    const TempDir dir;
    for (int f = 0; f < 5; ++f) {
        std::string text;
        for (int i = 0; i < 4; ++i)
            text += "{\"i\": " + std::to_string(f * 4 + i) + "}\n";
        dir.write("part" + std::to_string(f) + ".jsonl", text);
    }
    const auto numbers = [&](const char* split) {
        RowSourceOptions options;
        options.split = split;
        return read_all(dir.path(), options).numbers("i");
    };
    using Numbers = std::vector<std::int64_t>;
    EXPECT_EQ(numbers("").size(), 20u);
    EXPECT_EQ(numbers("[3:6]"), (Numbers{3, 4, 5}));
    EXPECT_EQ(numbers("train[-2:]+[:1]"), (Numbers{18, 19, 0}));
    EXPECT_EQ(numbers("[95%:]"), (Numbers{19}));
    EXPECT_TRUE(numbers("[40:]").empty());
}

// ---- folders and patterns ----

TEST(SplitNames, AreThoseOfTheHub) {
    for (const auto& [path, split] : std::vector<std::pair<const char*, const char*>>{
             {"train-00000-of-00002.parquet", "train"},
             {"data/test_sft-00000-of-00001.parquet", "test_sft"},
             {"data/train/0001.parquet", "train"},
             {"my-train-set.csv", "train"},
             {"dev.jsonl", "validation"},
             {"val.jsonl.gz", "validation"},
             {"evaluation/a.txt", "test"},
             {"training_data.txt", "train"},
             {"data-00000-of-00001.arrow", ""},
             {"contest.csv", ""},
             {"trainer.csv", ""}})
        EXPECT_EQ(split_of_name(path), split) << path;
}

TEST(DataFolders, SplitsByName) {
    const TempDir dir;
    fs::create_directories(dir / "set/data");
    dir.write("set/data/train-00001-of-00002.jsonl", "{\"i\": 1}\n");
    dir.write("set/data/train-00000-of-00002.jsonl", "{\"i\": 0}\n");
    dir.write("set/data/test-00000-of-00001.jsonl", "{\"i\": 2}\n");
    dir.write("set/README.md", "x");
    dir.write("set/dataset_infos.json", "{}");
    RowSourceOptions options;
    options.split = "train";
    EXPECT_EQ(read_all(dir / "set", options).numbers("i"), (std::vector<std::int64_t>{0, 1}));
    options.split = "test+train[1:]";
    EXPECT_EQ(read_all(dir / "set", options).numbers("i"), (std::vector<std::int64_t>{2, 1}));
    EXPECT_ERROR(read_all(dir / "set"), "test, train", "data.train_split");
    options.split = "dev";
    EXPECT_ERROR(read_all(dir / "set", options), "no split \"dev\"");
}

TEST(DataFolders, WhatHasNoMeaningIsRefused) {
    const TempDir dir;
    EXPECT_ERROR(read_all(dir.path()), "no data files");
    dir.write("a.csv", "a\n1\n");
    dir.write("b.jsonl", "{\"a\": 1}\n");
    EXPECT_ERROR(read_all(dir.path()), "1 csv, 1 jsonl", "data.format");
    RowSourceOptions options;
    options.format = "csv";
    EXPECT_EQ(read_all(dir.path(), options).rows.size(), 1u);
    options.format = "parquet";
    EXPECT_ERROR(read_all(dir.path(), options), "no parquet");
    fs::create_directories(dir / "two/main");
    fs::create_directories(dir / "two/socratic");
    dir.write("two/main/train-00000-of-00001.jsonl", "{}\n");
    dir.write("two/socratic/train-00000-of-00001.jsonl", "{}\n");
    EXPECT_ERROR(read_all(dir / "two"), "main, socratic");
    dir.write("two/main/extra.jsonl", "{}\n");
    EXPECT_ERROR(read_all(dir / "two"), "extra.jsonl", "none");
    EXPECT_ERROR(read_all(dir.write("x.xlsx", "PK")), "x.xlsx", "spreadsheets");
    EXPECT_ERROR(read_all(dir.write("x.dat", "12")), "x.dat", "data.format");
    EXPECT_ERROR(read_all(dir / "absent.jsonl"), "absent.jsonl", "no such file");
}

TEST(DataFolders, FilesOfUnknownFormatsAreTold) {
    const TempDir dir;
    dir.write("a.jsonl", "{\"i\": 1}\n");
    dir.write("README.md", "x");
    dir.write("LICENSE", "x");
    EXPECT_EQ(read_all(dir.path()).schema.unknown_files, "");
    dir.write("b.xlsx", "PK");
    dir.write("c.log", "x");
    dir.write("d.LOG", "x");
    const auto all = read_all(dir.path());
    EXPECT_EQ(all.rows.size(), 1u);
    EXPECT_EQ(all.schema.unknown_files, "2 .log, 1 .xlsx");
    EXPECT_EQ(read_all(dir / "*").schema.unknown_files, "2 .log, 1 .xlsx");
    fs::remove(dir / "a.jsonl");
    EXPECT_ERROR(read_all(dir.path()), "no data files", "but 2 .log, 1 .xlsx", "/*.xlsx)");
    EXPECT_ERROR(read_all(dir / "*.log"), "no data files", "but 1 .log: set data.format");
    RowSourceOptions options;
    options.format = "text";
    EXPECT_ERROR(read_all(dir.path(), options), "no text files", "2 .log");
    EXPECT_EQ(read_all(dir / "*.log", options).rows.size(), 1u);
}

TEST(DataFolders, Patterns) {
    const TempDir dir;
    fs::create_directories(dir / "x/y");
    dir.write("x/a1.jsonl", "{\"i\": 1}\n");
    dir.write("x/a2.jsonl", "{\"i\": 2}\n");
    dir.write("x/y/a3.jsonl", "{\"i\": 3}\n");
    dir.write("x/y/b.csv", "i\n4\n");
    EXPECT_EQ(read_all(dir / "x/a*.jsonl").rows.size(), 2u);
    EXPECT_EQ(read_all(dir / "x/*/a?.jsonl").rows.size(), 1u);
    EXPECT_EQ(read_all(dir / "x/**/*.jsonl").rows.size(), 3u);
    EXPECT_ERROR(read_all(dir / "x/z*"), "no file matches");
}

TEST(DataFolders, ManySmallFilesAreJoined) {
    const TempDir dir;
    for (int i = 0; i < 3000; ++i)
        dir.write(std::to_string(10000 + i) + ".txt", "text " + std::to_string(i) + "\n");
    const auto all = read_all(dir.path());
    ASSERT_EQ(all.rows.size(), 3000u);
    EXPECT_EQ(all.rows[2999].at("text").string(), "text 2999");
    EXPECT_EQ(all.places[2999], (dir / "12999.txt").string() + ":1");
    EXPECT_LE(all.sizes.size(), 6u);
}

TEST(DataFolders, RowsBeforeABrokenFileAreGiven) {
    const TempDir dir;
    dir.write("a.jsonl", "{\"i\": 1}\n");
    dir.write("b.jsonl.gz", gzip("{\"i\": 2}\n").substr(0, 20));
    const auto source = open_rows(dir.path().string());
    const auto batch = source->next();
    EXPECT_EQ(batch->size(), 1);
    EXPECT_ERROR(source->next(), "b.jsonl.gz", "too early");
    EXPECT_ERROR(source->next(), "b.jsonl.gz");
}

TEST(HubCache, DataSetsByName) {
    const TempDir dir;
    const fs::path set = dir / "datasets--org--name";
    fs::create_directories(set / "refs");
    fs::create_directories(set / "snapshots/abc123/data");
    std::ofstream(set / "refs/main") << "abc123";
    std::ofstream(set / "snapshots/abc123/data/train-00000-of-00001.jsonl") << "{\"i\": 7}\n";
    ::setenv("HF_HUB_CACHE", dir.path().c_str(), 1);
    EXPECT_EQ(read_all("org/name").numbers("i"), (std::vector<std::int64_t>{7}));
    EXPECT_ERROR(read_all("org/other"), "org/other", "hf download org/other --repo-type dataset");
    ::unsetenv("HF_HUB_CACHE");
}

// ---- real sets ----

TEST(RealSets, SpamInCsvAndTsv) {
    GARAM_REQUIRE_DATA("spam");
    for (const std::string& name : testing::files_in(testing::data_dir() / "spam", ".csv")) {
        const auto all = read_all(testing::data_dir() / "spam" / name);
        EXPECT_GT(all.rows.size(), 100u) << name;
        EXPECT_GE(all.schema.columns.size(), 2u) << name;
    }
}

TEST(RealSets, SmsSpamCollection) {
    GARAM_REQUIRE_DATA("spam");
    RowSourceOptions options;
    options.format = "tsv";
    options.csv_columns = {"label", "text"};
    options.csv_quote = '\0';
    const auto all = read_all(testing::data_dir() / "spam" / "SMSSpamCollection", options);
    ASSERT_EQ(all.rows.size(), 5574u);
    const auto spam = std::count_if(all.rows.begin(), all.rows.end(), [](const Json& row) {
        return row.at("label").string() == "spam";
    });
    EXPECT_EQ(spam, 747);
}

TEST(RealSets, Alpaca) {
    GARAM_REQUIRE_DATA("instruct");
    const auto all = read_all(testing::data_dir() / "instruct" / "alpaca_en_demo.json");
    ASSERT_EQ(all.rows.size(), 999u);
    for (const Json& row : all.rows)
        for (const char* key : {"instruction", "input", "output"})
            ASSERT_TRUE(row.at(key).is_string());
}

TEST(RealSets, Multi30k) {
    GARAM_REQUIRE_DATA("translation");
    fs::path folder;
    for (const auto& entry : fs::recursive_directory_iterator(testing::data_dir() / "translation"))
        if (entry.path().filename() == "train.de.gz") folder = entry.path().parent_path();
    if (folder.empty()) GTEST_SKIP() << "no train.de.gz";
    const auto all = read_all(*open_columns(
        {(folder / "train.de.gz").string(), (folder / "train.en.gz").string()}, {"de", "en"}));
    EXPECT_EQ(all.rows.size(), 29000u);
}

}  // namespace
}  // namespace garam
