// Rows, files and folders of absurd sizes: what reading them takes, and what is said of them.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "data/anonymous_bytes.h"
#include "data/expect_error.h"
#include "data/read_rows.h"
#include "garam/data/sources/file_rows.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam {
namespace {

namespace fs = std::filesystem;
using testing::anonymous_bytes;
using testing::read_all;
using testing::TempDir;

TEST(LargeRows, LinesOf100Megabytes) {
    const TempDir dir;
    const std::string text(100'000'000, 'x');
    const auto expect_rows = [&](const char* name, const std::string& content) {
        const auto all = read_all(dir.write(name, content));
        ASSERT_EQ(all.rows.size(), 2u) << name;
        EXPECT_EQ(all.rows[0].at("text").string().size(), text.size()) << name;
        EXPECT_EQ(all.rows[1].at("text").string(), "next") << name;
        fs::remove(dir / name);
    };
    expect_rows("rows.jsonl", "{\"text\": \"" + text + "\"}\n{\"text\": \"next\"}\n");
    expect_rows("rows.json", "[{\"text\": \"" + text + "\"},\n{\"text\": \"next\"}]\n");
    expect_rows("rows.csv", "text,i\n" + text + ",1\nnext,2\n");
    expect_rows("quoted.csv", "text,i\n\"" + text + "\",1\n\"next\",2\n");
    expect_rows("rows.txt", text + "\nnext\n");
}

// A file without one newline, all zeros but for its head: it takes no place on the disk.
fs::path endless(const TempDir& dir, const char* name, const std::string& head) {
    const fs::path file = dir.write(name, head);
    fs::resize_file(file, kMaxRowBytes + (std::size_t{64} << 20));
    return file;
}

TEST(SlowLargeRows, LinesWithoutAnEndAreRefused) {
    const TempDir dir;
    const std::int64_t before = anonymous_bytes();
    EXPECT_ERROR(read_all(endless(dir, "rows.jsonl", "{}\n{\"text\": \"")), "rows.jsonl:2",
                 "longer than 1024 MiB");
    EXPECT_ERROR(read_all(endless(dir, "rows.json", "[{\"text\": \"")), "rows.json:1", "1024 MiB");
    EXPECT_ERROR(read_all(endless(dir, "rows.csv", "text,i\n")), "rows.csv:2", "1024 MiB");
    EXPECT_ERROR(read_all(endless(dir, "open.csv", "text,i\n\"")), "open.csv:2", "1024 MiB");
    EXPECT_ERROR(read_all(endless(dir, "rows.txt", "a\n")), "rows.txt:2", "longer than 1024 MiB");
    EXPECT_LE(anonymous_bytes(), before + (std::int64_t{64} << 20));
}

TEST(SlowFolders, AHundredThousandFilesNeedFewHandles) {
    constexpr std::size_t kFiles = 100'000;
    const TempDir dir;
    for (std::size_t i = 0; i < kFiles; ++i)
        std::ofstream(dir / (std::to_string(1'000'000 + i) + ".jsonl")) << "{\"i\": " << i << "}\n";
    ::rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    const ::rlimit few{64, limit.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    std::int64_t next = 0;
    std::int64_t wrong = 0;
    std::int64_t batches = 0;
    const auto source = open_rows(dir.path().string());
    while (const auto batch = source->next()) {
        ++batches;
        for (std::int64_t i = 0; i < batch->size(); ++i)
            wrong += batch->row(i).at("i").integer() != next++;
    }
    ::setrlimit(RLIMIT_NOFILE, &limit);
    EXPECT_EQ(next, static_cast<std::int64_t>(kFiles));
    EXPECT_EQ(wrong, 0);
    EXPECT_LE(batches, 200);
    EXPECT_EQ(source->files().size(), kFiles);
}

struct Reading {
    std::int64_t rows = 0;
    std::int64_t peak = 0;  // of the whole process: what an earlier reading left is counted, too
};

Reading read_through(const fs::path& file) {
    Reading reading;
    const auto source = open_rows(file.string());
    std::size_t text = 0;
    while (const auto batch = source->next()) {
        reading.rows += batch->size();
        for (std::int64_t i = 0; i < batch->size(); ++i)
            text += batch->row(i).at("text").string().size();
        reading.peak = std::max(reading.peak, anonymous_bytes());
    }
    EXPECT_GT(text, 0u);
    return reading;
}

void write_json_lines(const fs::path& file, std::int64_t rows) {
    std::ofstream out(file);
    const std::string text(980, 'x');
    for (std::int64_t i = 0; i < rows; ++i)
        out << "{\"i\": " << i << ", \"text\": \"" << text << "\"}\n";
}

// `most`: MiB.
void expect_flat(const char* name, const Reading& small, const Reading& large, std::int64_t most) {
    EXPECT_EQ(small.rows, 100'000) << name;
    EXPECT_EQ(large.rows, 1'000'000) << name;
    EXPECT_LE(large.peak, small.peak + (std::int64_t{16} << 20)) << name;
    EXPECT_LE(large.peak, most << 20) << name;
    ::testing::Test::RecordProperty(std::string(name) + "_100_MB", std::to_string(small.peak));
    ::testing::Test::RecordProperty(std::string(name) + "_1_GB", std::to_string(large.peak));
}

TEST(SlowLargeRows, MemoryIsFlatFrom100MegabytesTo1Gigabyte) {
    const TempDir dir;
    write_json_lines(dir / "small.jsonl", 100'000);
    write_json_lines(dir / "large.jsonl", 1'000'000);
    const Reading small = read_through(dir / "small.jsonl");
    expect_flat("jsonl", small, read_through(dir / "large.jsonl"), 160);
}

TEST(SlowLargeRows, MemoryIsFlatForOneGiantRowGroup) {
    const TempDir dir;
    for (const char* arguments : {"small.parquet' 100", "large.parquet' 1000"})
        ASSERT_EQ(std::system((std::string("'" GARAM_MAKE_PARQUET "' '") + dir.path().string() +
                               "/" + arguments)
                                  .c_str()),
                  0);
    const Reading small = read_through(dir / "small.parquet");
    // A batch of 16 MiB, as much kept mapped for the next one (table_memory.h), a page of each column, and the
    // program.
    expect_flat("parquet", small, read_through(dir / "large.parquet"), 48);
}

}  // namespace
}  // namespace garam
