#include "garam/runtime/host_memory.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "testing/temp_dir.h"

namespace garam {
namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

void write(const std::filesystem::path& file, const std::string& text) {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << '\n';
}

TEST(HostMemory, IsNotMoreThanIsInstalled) {
    EXPECT_GT(host_memory_bytes(), std::int64_t{64} << 20);
    EXPECT_LT(host_memory_bytes(), std::int64_t{1} << 50);
}

TEST(HostMemory, TheLeastLimitOfAGroupAndThoseAboveIt) {
    const testing::TempDir dir;
    write(dir / "memory.max", "max");
    write(dir / "user/memory.max", "8000000000");
    write(dir / "user/job/memory.max", "9000000000");
    write(dir / "user/small/memory.max", "7000000000");
    EXPECT_EQ(memory_limit_of_groups(dir.path(), "0::/user/job\n"), 8000000000);
    EXPECT_EQ(memory_limit_of_groups(dir.path(), "0::/user/small\n"), 7000000000);
    EXPECT_EQ(memory_limit_of_groups(dir.path(), "0::/\n"), kNone);
    write(dir / "memory.max", "6000000000");  // as a container sees its own
    EXPECT_EQ(memory_limit_of_groups(dir.path(), "0::/\n"), 6000000000);
}

TEST(HostMemory, LimitsOfVersionOneLieByController) {
    const testing::TempDir dir;
    write(dir / "memory/job/memory.limit_in_bytes", "5000000000");
    write(dir / "memory/memory.limit_in_bytes", "9223372036854771712");
    const std::string membership = "12:cpu,cpuacct:/other\n7:hugetlb,memory:/job\n0::/\n";
    EXPECT_EQ(memory_limit_of_groups(dir.path(), membership), 5000000000);
}

TEST(HostMemory, WhatIsNoLimitIsNone) {
    const testing::TempDir dir;
    // A number that none of these leads to, and below it a mount without one.
    write(dir / "memory.max", "4000000000");
    write(dir / "mount/memory.max", "");
    for (const char* const membership : {"", "nonsense\n", ":\n", "3:cpu:/\n"})
        EXPECT_EQ(memory_limit_of_groups(dir.path(), membership), kNone) << membership;
    for (const char* const membership : {"0::/\n", "0::/..\n", "0::/../../..\n", "0::..\n"})
        EXPECT_EQ(memory_limit_of_groups(dir / "mount", membership), kNone) << membership;
    EXPECT_EQ(memory_limit_of_groups(dir.path(), "0::/../../..\n"), 4000000000);
}

TEST(HostMemory, TheErrorNamesWhatThisProcessMayHave) {
    const auto said = [](std::int64_t allowed) -> std::string {
        return host_memory_error("host memory", 3 << 20, "no room", allowed).what();
    };
    EXPECT_NE(said(64 << 20).find(", of which this process may have 64 MiB): "), std::string::npos)
        << said(64 << 20);
    for (const std::int64_t allowed : {std::int64_t{0}, kNone})
        EXPECT_EQ(said(allowed).find("this process"), std::string::npos) << said(allowed);
}

}  // namespace
}  // namespace garam
