#include "garam/io/event_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <ctime>
#include <limits>
#include <vector>

#include "garam/core/error.h"
#include "testing/temp_dir.h"

namespace garam {
namespace {

namespace fs = std::filesystem;
using testing::read_file;
using testing::TempDir;

std::uint32_t crc_of(std::string_view text) {
    return crc32c({reinterpret_cast<const std::byte*>(text.data()), text.size()});
}

// Vectors of RFC 3720, appendix B.4, and the usual check value.
TEST(Crc32c, KnownVectors) {
    EXPECT_EQ(crc_of("123456789"), 0xe3069283u);
    EXPECT_EQ(crc_of(std::string(32, '\0')), 0x8a9136aau);
    EXPECT_EQ(crc_of(std::string(32, '\xff')), 0x62a8ab43u);
    std::string ascending;
    for (char c = 0; c < 32; ++c)
        ascending += c;
    EXPECT_EQ(crc_of(ascending), 0x46dd794eu);
    EXPECT_EQ(crc_of(""), 0u);
}

template <typename T>
T take(std::string_view& bytes) {
    T value{};
    EXPECT_GE(bytes.size(), sizeof value);
    if (bytes.size() < sizeof value) return value;
    std::memcpy(&value, bytes.data(), sizeof value);
    bytes.remove_prefix(sizeof value);
    return value;
}

std::uint64_t take_varint(std::string_view& bytes) {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const auto byte = take<std::uint8_t>(bytes);
        value |= std::uint64_t{byte & 0x7fu} << shift;
        if (byte < 0x80) break;
    }
    return value;
}

std::string_view take_bytes(std::string_view& bytes) {
    const std::uint64_t length = take_varint(bytes);
    EXPECT_LE(length, bytes.size());
    const std::string_view taken = bytes.substr(0, length);
    bytes.remove_prefix(taken.size());
    return taken;
}

struct Event {
    double wall_time = 0;
    std::int64_t step = 0;
    std::string file_version;
    std::string tag;
    float value = 0;
};

// A reader of its own, written from the format: checks both checksums of every record and that nothing is
// left over.
std::vector<Event> parse(const std::string& content) {
    std::vector<Event> events;
    std::string_view bytes = content;
    while (!bytes.empty()) {
        const auto stored = [](std::uint32_t crc) {
            return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
        };
        const std::string_view length_bytes = bytes.substr(0, 8);
        const auto length = take<std::uint64_t>(bytes);
        EXPECT_EQ(take<std::uint32_t>(bytes), stored(crc_of(length_bytes)));
        std::string_view record = bytes.substr(0, length);
        EXPECT_EQ(record.size(), length);
        bytes.remove_prefix(record.size());
        EXPECT_EQ(take<std::uint32_t>(bytes), stored(crc_of(record)));
        Event event;
        while (!record.empty()) {
            switch (take_varint(record)) {
                case (1 << 3) | 1:
                    event.wall_time = take<double>(record);
                    break;
                case (2 << 3) | 0:
                    event.step = static_cast<std::int64_t>(take_varint(record));
                    break;
                case (3 << 3) | 2:
                    event.file_version = take_bytes(record);
                    break;
                case (5 << 3) | 2: {
                    std::string_view summary = take_bytes(record);
                    EXPECT_EQ(take_varint(summary), (1u << 3) | 2u);
                    std::string_view value = take_bytes(summary);
                    EXPECT_TRUE(summary.empty());
                    EXPECT_EQ(take_varint(value), (1u << 3) | 2u);
                    event.tag = take_bytes(value);
                    EXPECT_EQ(take_varint(value), (2u << 3) | 5u);
                    event.value = take<float>(value);
                    EXPECT_TRUE(value.empty());
                    break;
                }
                default:
                    ADD_FAILURE() << "unknown field";
                    return events;
            }
        }
        events.push_back(event);
    }
    return events;
}

TEST(EventFile, ScalarsReadBack) {
    const TempDir dir;
    const auto before = static_cast<double>(std::time(nullptr));
    EventFile file(dir / "logs/run");
    EXPECT_EQ(file.path().filename().string().find("events.out.tfevents."), 0u);
    const std::string long_tag(300, 't');
    file.scalar("train/loss", 2.437411, 1);
    file.scalar("학습/손실", -1e30, 1'000'000'000'000);
    file.scalar(long_tag, std::numeric_limits<double>::quiet_NaN(), 0);
    const std::vector<Event> events = parse(read_file(file.path()));  // flushed while still open
    ASSERT_EQ(events.size(), 4u);
    EXPECT_EQ(events[0].file_version, "brain.Event:2");
    EXPECT_EQ(events[1].tag, "train/loss");
    EXPECT_EQ(events[1].value, 2.437411f);
    EXPECT_EQ(events[1].step, 1);
    EXPECT_EQ(events[2].tag, "학습/손실");
    EXPECT_EQ(events[2].value, -1e30f);
    EXPECT_EQ(events[2].step, 1'000'000'000'000);
    EXPECT_EQ(events[3].tag, long_tag);
    EXPECT_TRUE(std::isnan(events[3].value));
    for (const Event& event : events) {
        EXPECT_GE(event.wall_time, before);
        EXPECT_LE(event.wall_time, before + 3600);
    }
}

TEST(EventFile, TwoInOneSecondAreTwoFiles) {
    const TempDir dir;
    const EventFile one(dir.path());
    const EventFile two(dir.path());
    EXPECT_NE(one.path(), two.path());
    EXPECT_EQ(parse(read_file(two.path())).size(), 1u);
}

TEST(EventFile, AFolderThatCannotBeMadeIsNamed) {
    const TempDir dir;
    dir.write("file", "x");
    try {
        const EventFile file(dir / "file/logs");
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()).find((dir / "file/logs").string()), 0u) << error.what();
    }
}

// The system refuses to let the file grow in the middle of a record: the Error names it, and what was
// written before stays readable.
TEST(EventFile, ARefusedWriteLeavesWholeRecords) {
    const TempDir dir;
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{1000, 1000};
        setrlimit(RLIMIT_FSIZE, &limit);
        int status = 1;
        try {
            EventFile file(dir.path());
            for (std::int64_t step = 0; step < 100; ++step)
                file.scalar("loss", 1.0, step);
        } catch (const Error& error) {
            status =
                std::string(error.what()).ends_with("cannot be written: File too large") ? 0 : 2;
        }
        _exit(status);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 0);
    const fs::path path = fs::directory_iterator(dir.path())->path();
    const std::vector<Event> events = parse(read_file(path));
    EXPECT_GT(events.size(), 5u);
    EXPECT_EQ(events.back().step, static_cast<std::int64_t>(events.size()) - 2);
}

}  // namespace
}  // namespace garam
