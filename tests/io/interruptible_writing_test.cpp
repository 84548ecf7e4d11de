#include "garam/io/interruptible_writing.h"

#include <gtest/gtest.h>
#include <signal.h>

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

TEST(InterruptibleWriting, EndsWithItsScope) {
    const TempDir dir;
    const auto ignored = ::signal(SIGINT, [](int) {});
    { const InterruptibleWriting interruptible; }
    EXPECT_EQ(signal_of_writing(dir / "model", SIGINT), 0) << "the handler from before is back";
    ::signal(SIGINT, ignored);
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
