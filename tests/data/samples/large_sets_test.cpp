// What it takes to make the samples of sets larger than memory should hold.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include "data/anonymous_bytes.h"
#include "garam/data/samples/read_samples.h"
#include "testing/temp_dir.h"
#include "text/tokenizer_data.h"

namespace garam {
namespace {

namespace fs = std::filesystem;
using testing::AnonymousPeak;
using testing::TempDir;

// Rows of about a kilobyte, of words of several lengths and of numbers that no row has had before.
void write_rows(const fs::path& file, std::int64_t megabytes) {
    constexpr std::array kWords = {"the",    "rain",       "in",    "Seoul",  "falls",
                                   "mainly", "안녕하세요", "model", "tokens", "memory",
                                   "한국어", "straight",   "and",   "of"};
    std::ofstream out(file);
    std::uint64_t state = 1;
    std::string line;
    for (std::int64_t written = 0; written < megabytes * 1'000'000;
         written += static_cast<std::int64_t>(line.size())) {
        line = "{\"text\": \"";
        while (line.size() < 1000) {
            state = state * 6364136223846793005U + 1442695040888963407U;
            const std::uint64_t number = state >> 33;
            line += number % 16 == 0 ? std::to_string(number) : kWords[number % kWords.size()];
            line += ' ';
        }
        line += "\"}\n";
        out << line;
    }
    ASSERT_TRUE(out.flush());
}

struct Making {
    std::int64_t peak = 0;
    std::int64_t samples = 0;
    std::int64_t table_bytes = 0;
};

Making make_samples(const TempDir& dir, const Tokenizer& tokenizer, std::int64_t megabytes) {
    const fs::path file = dir / "rows.jsonl";
    write_rows(file, megabytes);
    DataConfig config;
    config.cache_dir = (dir / "cache").string();
    Making making;
    AnonymousPeak peak;
    {
        const SampleTables tables =
            read_sample_tables(open_sources(DataPlaces::of(file.string()), config), config,
                               EncodingSettings{}, tokenizer);
        making.peak = peak.stop();
        making.samples = tables.sources.at(0).table.size();
        making.table_bytes = SampleCache(config.cache_dir).list().at(0).bytes;
    }
    fs::remove_all(dir / "cache");
    fs::remove(file);
    return making;
}

// Text to tokens, by one program: 100 MB, then 2 GB. There is no more memory in it than two batches of rows, the
// tokenizer, and words remembered (2 MiB a thread). A batch of these rows is 4 MiB of text, and 10 MiB of ids and
// labels; whether one is read while all of the last are still held is a matter of moments, which 20 times the
// batches have more of: so much is allowed between the two.
TEST(SlowLargeSets, MemoryOfTokenisingIsFlatFrom100MegabytesTo2Gigabytes) {
    const Tokenizer* tokenizer = testing::reference_tokenizer("llama-3.1");
    if (tokenizer == nullptr) GTEST_SKIP() << "no files of a tokenizer";
    const TempDir dir;
    if (fs::space(dir.path()).available < std::uintmax_t{8'000'000'000})
        GTEST_SKIP() << "less than 8 GB of room in " << dir.path();
    const std::int64_t before = testing::anonymous_bytes();
    const Making small = make_samples(dir, *tokenizer, 100);
    const Making large = make_samples(dir, *tokenizer, 2000);
    EXPECT_GT(small.samples, 90'000);
    EXPECT_GT(large.samples, 1'900'000);
    EXPECT_GT(large.table_bytes, std::int64_t{1} << 30);
    EXPECT_LE(large.peak, small.peak + (std::int64_t{28} << 20));
    EXPECT_LE(large.peak, before + (std::int64_t{96} << 20));
    RecordProperty("before", std::to_string(before));
    RecordProperty("peak_100_MB", std::to_string(small.peak));
    RecordProperty("peak_2_GB", std::to_string(large.peak));
    RecordProperty("table_of_2_GB", std::to_string(large.table_bytes));
}

}  // namespace
}  // namespace garam
