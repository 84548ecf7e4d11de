#include "garam/io/interruptible_writing.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <csignal>
#include <filesystem>

#include "garam/io/atomic_write.h"
#include "testing/temp_dir.h"

namespace garam {
namespace {

namespace fs = std::filesystem;
using testing::TempDir;

// The signal that writing a folder of two files ends with, which comes between them; 0: it is written.
int signal_of_writing(const fs::path& out, int signal) {
    try {
        write_new_folder_atomically(out, [&](const fs::path& folder) {
            write_file_atomically(folder / "first", "whole");
            raise(signal);
            write_file_atomically(folder / "second", "never");
        });
    } catch (const WritingInterrupted& interrupted) {
        return interrupted.signal;
    }
    return 0;
}

TEST(InterruptibleWriting, NothingStaysBehind) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
        const TempDir dir;
        const InterruptibleWriting interruptible;
        EXPECT_EQ(signal_of_writing(dir / "model", signal), signal);
        EXPECT_TRUE(fs::is_empty(dir.path()));
    }
}

// One that comes when all is written but nothing is in its place, as in the seconds that syncing takes.
TEST(InterruptibleWriting, UntilAFileIsInItsPlace) {
    const TempDir dir;
    const InterruptibleWriting interruptible;
    {
        AtomicFile file(dir / "adapter");
        file.write("whole", 5);
        raise(SIGINT);
        EXPECT_THROW(file.commit(), WritingInterrupted);
    }
    EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(InterruptibleWriting, UntilAFolderIsInItsPlace) {
    const TempDir dir;
    const InterruptibleWriting interruptible;
    const auto fill = [](const fs::path& folder) {
        write_file_atomically(folder / "only", "whole");
        raise(SIGTERM);
    };
    EXPECT_THROW(write_new_folder_atomically(dir / "model", fill), WritingInterrupted);
    EXPECT_TRUE(fs::is_empty(dir.path()));
}

volatile std::sig_atomic_t seen_by_earlier = 0;

TEST(InterruptibleWriting, EndsWithItsScope) {
    const TempDir dir;
    const auto before = ::signal(SIGINT, [](int signal) { seen_by_earlier = signal; });
    { const InterruptibleWriting interruptible; }
    EXPECT_EQ(signal_of_writing(dir / "model", SIGINT), 0);
    EXPECT_EQ(seen_by_earlier, SIGINT) << "the handler from before is not back";
    ::signal(SIGINT, before);
    EXPECT_TRUE(fs::exists(dir / "model/second"));
}

TEST(InterruptibleWriting, WhatIsIgnoredStaysIgnored) {
    const TempDir dir;
    const auto before = ::signal(SIGHUP, SIG_IGN);
    {
        const InterruptibleWriting interruptible;
        EXPECT_EQ(signal_of_writing(dir / "model", SIGHUP), 0);
    }
    ::signal(SIGHUP, before);
}

TEST(InterruptibleWritingDeathTest, ASecondSignalEndsTheProcess) {
    EXPECT_EXIT(
        {
            const InterruptibleWriting interruptible;
            raise(SIGINT);
            raise(SIGINT);
        },
        ::testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace garam
