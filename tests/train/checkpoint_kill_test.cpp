// Checkpoints under a kill at any moment and on a disk that is full.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "garam/core/error.h"
#include "garam/train/checkpoint.h"
#include "testing/temp_dir.h"
#include "train/run_state.h"

namespace garam {
namespace {

namespace fs = std::filesystem;
using testing::contents_of;
using testing::RunTensors;
using testing::TempDir;

// Every folder that bears a checkpoint's name must be one, with the tensors of its own step.
void expect_all_whole(const fs::path& output_dir) {
    for (const auto& entry : fs::directory_iterator(output_dir)) {
        if (entry.path().filename().string()[0] == '.') continue;  // a temporary one
        RunTensors read(-1.0f, 20000);
        const Checkpoint checkpoint = Checkpoint::open(entry.path());
        checkpoint.restore(read.masters, read.optimizer);
        const RunTensors expected(static_cast<float>(checkpoint.state().global_step), 20000);
        EXPECT_EQ(read.memory, expected.memory) << entry.path();
    }
}

// A training process that saves and rotates as fast as it can, from where it was killed before; it
// writes a byte to `done` after each.
[[noreturn]] void save_forever(const fs::path& output_dir, int done) {
    try {
        std::int64_t step = 0;
        if (const auto last = find_last_checkpoint(output_dir); last.folder)
            step = Checkpoint::open(*last.folder).state().global_step;
        RunTensors run(0.0f, 20000);
        for (;;) {
            ++step;
            run.set(static_cast<float>(step));
            save_checkpoint(output_dir, contents_of(run, step));
            rotate_checkpoints(output_dir, 2, "");
            if (write(done, "+", 1) != 1) _exit(1);
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        _exit(1);
    }
}

TEST(CheckpointKill, AKillAtAnyMomentLeavesWholeCheckpoints) {
    constexpr int kRounds = 24;
    using Clock = std::chrono::steady_clock;
    const TempDir dir;
    const fs::path output_dir = dir / "out";
    std::int64_t newest = 0;
    for (int round = 0; round < kRounds; ++round) {
        int done[2];
        ASSERT_EQ(pipe(done), 0);
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) save_forever(output_dir, done[1]);
        close(done[1]);
        // After one save, so that each round gets on however slow the machine is, and then at moments
        // spread over the next one and a half.
        char byte = 0;
        const Clock::time_point start = Clock::now();
        ASSERT_EQ(read(done[0], &byte, 1), 1) << "the child ended by itself";
        const Clock::duration one_save = Clock::now() - start;
        std::this_thread::sleep_for(one_save * round * 3 / (2 * kRounds));
        kill(child, SIGKILL);
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        close(done[0]);
        ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
        expect_all_whole(output_dir);
        const auto last = find_last_checkpoint(output_dir);
        EXPECT_TRUE(last.passed_over.empty());
        ASSERT_TRUE(last.folder);
        const std::int64_t step = Checkpoint::open(*last.folder).state().global_step;
        EXPECT_GT(step, newest);  // what was saved stays
        newest = step;
    }
    // The next save and rotation sweep away what the kills left.
    const RunTensors run(static_cast<float>(newest + 1), 20000);
    save_checkpoint(output_dir, contents_of(run, newest + 1));
    rotate_checkpoints(output_dir, 2, "");
    EXPECT_EQ(std::distance(fs::directory_iterator(output_dir), fs::directory_iterator()), 2);
}

// Runs `body` in a process of its own (limits and signal settings end with it); its EXPECTs count by
// the exit status.
void in_child(const std::function<bool()>& body) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        bool good = false;
        try {
            good = body();
        } catch (const std::exception& error) {
            std::fprintf(stderr, "%s\n", error.what());
        }
        _exit(good ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

// The error names the disk's reason, the checkpoint before stays, nothing half-written is left.
bool refuses_and_keeps(const fs::path& output_dir, const std::string& reason) {
    RunTensors large(2.0f, 200000);
    try {
        save_checkpoint(output_dir, contents_of(large, 2));
        std::fprintf(stderr, "written\n");
        return false;
    } catch (const Error& error) {
        if (std::string(error.what()).find(reason) == std::string::npos) {
            std::fprintf(stderr, "%s\n", error.what());
            return false;
        }
    }
    int names = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(output_dir))
        ++names;
    const auto last = find_last_checkpoint(output_dir);
    return names == 1 && last.folder && last.folder->filename() == "checkpoint-1" &&
           Checkpoint::open(*last.folder).state().global_step == 1;
}

TEST(CheckpointKill, AFileTooLargeForItsLimitIsRefused) {
    const TempDir dir;
    const RunTensors small(1.0f);
    save_checkpoint(dir.path(), contents_of(small, 1));
    in_child([&] {
        signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{1 << 20, 1 << 20};
        setrlimit(RLIMIT_FSIZE, &limit);
        return refuses_and_keeps(dir.path(), "File too large");
    });
}

TEST(CheckpointKill, AFullDiskIsRefused) {
    const TempDir dir;
    const fs::path disk = dir / "disk";
    fs::create_directory(disk);
    if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=6m") != 0)
        GTEST_SKIP() << "a small file system can only be mounted by root";
    const RunTensors small(1.0f);
    save_checkpoint(disk, contents_of(small, 1));
    // The adapter (4.8 MB) fits, the optimiser's states (9.6 MB) do not.
    in_child([&] { return refuses_and_keeps(disk, "No space left on device"); });
    EXPECT_EQ(umount2(disk.c_str(), MNT_DETACH), 0);
}

}  // namespace
}  // namespace garam
