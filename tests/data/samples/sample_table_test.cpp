#include "garam/data/samples/sample_table.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <string>

#include "data/anonymous_bytes.h"
#include "data/expect_error.h"
#include "garam/core/philox.h"
#include "garam/data/loader.h"
#include "testing/temp_dir.h"

namespace garam {
namespace {

// Samples of every kind of label: all targets, some, none, and labels that are other ids.
std::vector<Sample> samples_of_all_kinds(std::size_t count, std::uint64_t seed) {
    Random random(seed);
    std::vector<Sample> samples(count);
    for (std::size_t i = 0; i < count; ++i) {
        samples[i].row = static_cast<std::int64_t>(i * 3);
        const std::uint64_t kind = random.below(4);
        const std::uint64_t length = 1 + random.below(50);
        for (std::uint64_t t = 0; t < length; ++t) {
            const auto id = static_cast<std::int32_t>(random.below(std::uint64_t{1} << 31));
            samples[i].ids.push_back(id);
            const bool scored = kind == 0 || (kind != 1 && random.below(2) == 0);
            samples[i].labels.push_back(!scored     ? kIgnore
                                        : kind == 3 ? static_cast<std::int32_t>(random.below(9))
                                                    : id);
        }
    }
    return samples;
}

void expect_holds(const SampleTable& table, const std::vector<Sample>& samples) {
    ASSERT_EQ(table.size(), static_cast<std::int64_t>(samples.size()));
    for (std::int64_t i = 0; i < table.size(); ++i) {
        const Sample& expected = samples[static_cast<std::size_t>(i)];
        const Sample got = table.sample(i);
        ASSERT_EQ(got.ids, expected.ids);
        ASSERT_EQ(got.labels, expected.labels);
        EXPECT_EQ(got.row, expected.row);
        EXPECT_EQ(table.row(i), expected.row);
        EXPECT_EQ(table.tokens(i), expected.tokens());
        EXPECT_EQ(table.targets(i), expected.targets());
        TokenBatch batch;
        TokenBatch expected_batch;
        for (int twice = 0; twice < 2; ++twice) {
            table.append_to(batch, i, 7);
            expected_batch.append(expected.ids, expected.labels, 7);
        }
        ASSERT_EQ(batch.ids, expected_batch.ids);
        ASSERT_EQ(batch.targets, expected_batch.targets);
        EXPECT_EQ(batch.positions, expected_batch.positions);
        EXPECT_EQ(batch.cu_seqlens, expected_batch.cu_seqlens);
        EXPECT_EQ(batch.sample_ids, expected_batch.sample_ids);
    }
}

std::string content_of(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

class SampleTableFile : public ::testing::Test {
  protected:
    std::filesystem::path write(const std::vector<Sample>& samples) {
        SampleTableWriter writer(file_);
        for (const Sample& sample : samples)
            writer.append(sample, sample.tokens() + 5);
        ReadReport report;
        report.file = "rows.jsonl";
        report.rows = 1000;
        report.kept = static_cast<std::int64_t>(samples.size());
        report.drop(DropReason::beyond_max_length, "rows.jsonl:17", "\"a beginning\"");
        report.skipped = {3, "rows.jsonl:4", "rows.jsonl:4: broken"};
        writer.finish(report);
        return file_;
    }

    testing::TempDir dir_;
    std::filesystem::path file_ = dir_ / "table";
};

TEST_F(SampleTableFile, HoldsWhatWasWritten) {
    for (const std::size_t count : {0, 1, 2, 700}) {
        const auto samples = samples_of_all_kinds(count, count);
        const SampleTable table(write(samples));
        expect_holds(table, samples);
        for (std::int64_t i = 0; i < table.size(); ++i)
            EXPECT_EQ(table.full_tokens(i), table.tokens(i) + 5);
        EXPECT_EQ(table.report().rows, 1000);
        EXPECT_EQ(table.report().kept, table.size());
        const auto& dropped =
            table.report().dropped[static_cast<std::size_t>(DropReason::beyond_max_length)];
        EXPECT_EQ(dropped.count, 1);
        EXPECT_EQ(dropped.first_where, "rows.jsonl:17");
        EXPECT_EQ(dropped.first_example, "\"a beginning\"");
        EXPECT_EQ(table.report().skipped.first_example, "rows.jsonl:4: broken");
        EXPECT_EQ(table.fingerprint(), table_of(samples).fingerprint());
    }
}

TEST_F(SampleTableFile, TakesFourBytesATokenWhereLabelsAreIds) {
    std::vector<Sample> samples(100);
    for (Sample& sample : samples) {
        sample.ids.assign(1000, 5);
        sample.labels.assign(1000, kIgnore);
        sample.labels.back() = 5;
    }
    EXPECT_LT(std::filesystem::file_size(write(samples)), 100 * 1000 * 4 + 100 * 24 + 1000);
}

TEST(SampleTable, UnnamedOutlivesItsWriterAndIsShared) {
    const auto samples = samples_of_all_kinds(50, 3);
    SampleTable copy;
    EXPECT_TRUE(copy.empty());
    EXPECT_EQ(copy.report().rows, 0);
    {
        const SampleTable table = table_of(samples);
        copy = table;
    }
    expect_holds(copy, samples);
    EXPECT_EQ(copy.report().kept, 50);
    EXPECT_THROW(copy.sample(50), Bug);
    EXPECT_THROW(copy.tokens(-1), Bug);
}

// Whatever byte is changed or lost: an Error, or samples within the file; never a read beyond it.
TEST_F(SampleTableFile, DamageIsAnErrorOrOtherTokens) {
    const auto samples = samples_of_all_kinds(8, 4);
    const std::string whole = content_of(write(samples));
    for (std::size_t bytes = 0; bytes < whole.size(); bytes += bytes < 200 ? 1 : 37) {
        const auto cut = dir_.write("cut", whole.substr(0, bytes));
        EXPECT_ERROR(SampleTable{cut}, "cut: not a whole table of samples");
    }
    EXPECT_ERROR(SampleTable{dir_.write("longer", whole + "x")}, "not a whole table");
    EXPECT_ERROR(SampleTable{dir_ / "none"}, "none: cannot be read: No such file");
    EXPECT_ERROR(SampleTable{dir_.path()}, "not a whole table");
    std::int64_t refused = 0;
    for (std::size_t at = 0; at < whole.size(); ++at) {
        for (const char flip : {'\x01', '\x80'}) {
            std::string damaged = whole;
            damaged[at] = static_cast<char>(damaged[at] ^ flip);
            try {
                const SampleTable table(dir_.write("damaged", damaged));
                TokenBatch batch;
                for (std::int64_t i = 0; i < table.size(); ++i)
                    table.append_to(batch, i, i);
            } catch (const Error&) {
                ++refused;
            }
        }
    }
    EXPECT_GT(refused, 128 * 2);  // the header, and most of the index
}

TEST_F(SampleTableFile, UnfinishedLeavesNothing) {
    {
        SampleTableWriter writer(file_);
        writer.append(samples_of_all_kinds(1, 1)[0], 9);
    }
    EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
    EXPECT_ERROR(SampleTableWriter{dir_ / "no" / "table"}, "no/table: cannot be written: No such");
    SampleTableWriter writer(file_);
    writer.finish({});
    EXPECT_THROW(writer.append({{1}, {1}, 0}, 1), Bug);
    EXPECT_THROW(writer.finish({}), Bug);
}

TEST_F(SampleTableFile, AFullDiskIsNamed) {
    // As a disk that takes no more than 3 MB: the same path in the program, with EFBIG for ENOSPC.
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{3 << 20, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    std::string message;
    try {
        SampleTableWriter writer(file_);
        const Sample sample{std::vector<std::int32_t>(1000, 1), std::vector<std::int32_t>(1000, 1),
                            0};
        for (int i = 0; i < 2000; ++i)
            writer.append(sample, 1000);
        writer.finish({});
    } catch (const Error& error) {
        message = error.what();
    }
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, old_handler);
    EXPECT_NE(message.find(file_.string() + ": cannot be written: File too large, after 3 MB"),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("data.cache_dir"), std::string::npos) << message;
    EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

using testing::anonymous_bytes;

struct Peaks {
    std::int64_t writing = 0;
    std::int64_t loading = 0;
    std::int64_t samples = 0;
};

Peaks peaks_of(std::int64_t bytes) {
    constexpr std::size_t kTokens = 500;
    Peaks peaks;
    const testing::TempDir dir;
    Sample sample{std::vector<std::int32_t>(kTokens, 7), std::vector<std::int32_t>(kTokens, 7), 0};
    const std::int64_t before = anonymous_bytes();
    peaks.samples = bytes / static_cast<std::int64_t>(4 * kTokens);
    SampleTableWriter writer(dir / "table");
    for (; sample.row < peaks.samples; ++sample.row) {
        writer.append(sample, kTokens);
        if (sample.row % 10000 == 0)
            peaks.writing = std::max(peaks.writing, anonymous_bytes() - before);
    }
    const SampleTable table = writer.finish({});
    for (const bool packing : {false, true}) {
        const Loader loader(table, {4, 2, 1024, packing, true, 1});
        for (std::int64_t step = 0; step < loader.steps_per_epoch(); ++step) {
            loader.step(step);
            if (step % 1000 == 0)
                peaks.loading = std::max(peaks.loading, anonymous_bytes() - before);
        }
    }
    return peaks;
}

TEST(SlowSampleTable, MemoryIsFlatFrom100MegabytesTo2Gigabytes) {
    constexpr std::int64_t kSlack = 4 << 20;  // what the allocator keeps
    peaks_of(1000000);
    const Peaks small = peaks_of(100000000);
    const Peaks large = peaks_of(2000000000);
    EXPECT_LE(large.writing, small.writing + kSlack);
    EXPECT_LE(large.loading, small.loading + 24 * (large.samples - small.samples) + kSlack);
    RecordProperty("writing_bytes", std::to_string(large.writing));
    RecordProperty("loading_bytes", std::to_string(large.loading));
}

}  // namespace
}  // namespace garam
