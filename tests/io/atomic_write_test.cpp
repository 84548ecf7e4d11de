#include "garam/io/atomic_write.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "garam/core/error.h"
#include "testing/temp_dir.h"

namespace garam {
namespace {

namespace fs = std::filesystem;
using testing::read_file;
using testing::TempDir;

std::size_t entries_in(const fs::path& folder) {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

std::string message_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

// Runs `action` in a child process; its result is the exit status.
int in_child(const std::function<int()>& action) {
    const pid_t child = fork();
    if (child == 0) {
        int status = 99;
        try {
            status = action();
        } catch (const std::exception& error) {
            fprintf(stderr, "child: %s\n", error.what());
        }
        _exit(status);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

TEST(AtomicWrite, FileIsWrittenAndReplaced) {
    const TempDir dir;
    write_file_atomically(dir / "a.txt", "one");
    EXPECT_EQ(read_file(dir / "a.txt"), "one");
    write_file_atomically(dir / "a.txt", std::string(100000, 'x'));
    EXPECT_EQ(read_file(dir / "a.txt"), std::string(100000, 'x'));
    EXPECT_EQ(entries_in(dir.path()), 1u);
}

TEST(AtomicWrite, FileErrorsNameFileAndReason) {
    const TempDir dir;
    EXPECT_EQ(message_of([&] { write_file_atomically(dir / "none/a", "x"); }),
              (dir / "none/a").string() + ": cannot be written: No such file or directory");
    fs::create_directory(dir / "folder");
    EXPECT_EQ(message_of([&] { write_file_atomically(dir / "folder", "x"); }),
              (dir / "folder").string() + ": cannot be written: Is a directory");
    EXPECT_EQ(entries_in(dir.path()), 1u);
}

TEST(AtomicWrite, AFileNotCommittedLeavesTheOldOne) {
    const TempDir dir;
    write_file_atomically(dir / "a", "old");
    {
        AtomicFile file(dir / "a");
        file.write("new", 3);
    }
    EXPECT_EQ(read_file(dir / "a"), "old");
    EXPECT_EQ(entries_in(dir.path()), 1u);
}

TEST(AtomicWrite, FolderIsWrittenAndReplaced) {
    const TempDir dir;
    write_folder_atomically(dir / "run", [](const fs::path& folder) {
        write_file_atomically(folder / "a", "1");
        fs::create_directory(folder / "sub");
        write_file_atomically(folder / "sub" / "b", "2");
    });
    EXPECT_EQ(read_file(dir / "run/sub/b"), "2");
    write_folder_atomically(
        dir / "run/", [](const fs::path& folder) { write_file_atomically(folder / "c", "3"); });
    EXPECT_EQ(read_file(dir / "run/c"), "3");
    EXPECT_EQ(entries_in(dir / "run"), 1u) << "nothing of the old folder remains";
    EXPECT_EQ(entries_in(dir.path()), 1u) << "no temporary remains";
}

TEST(AtomicWrite, FolderWhoseFillThrowsLeavesTheOldOne) {
    const TempDir dir;
    write_folder_atomically(dir / "run",
                            [](const fs::path& f) { write_file_atomically(f / "a", "old"); });
    EXPECT_EQ(message_of([&] {
                  write_folder_atomically(dir / "run", [](const fs::path& f) {
                      write_file_atomically(f / "a", "new");
                      throw Error("stop");
                  });
              }),
              "stop");
    EXPECT_EQ(read_file(dir / "run/a"), "old");
    EXPECT_EQ(entries_in(dir.path()), 1u);
}

// It takes long to write a model, and others write meanwhile.
TEST(AtomicWrite, ANewFolderDoesNotReplaceWhatCameMeanwhile) {
    for (const bool is_folder : {true, false}) {
        const TempDir dir;
        EXPECT_EQ(message_of([&] {
                      write_new_folder_atomically(dir / "model/", [&](const fs::path& f) {
                          write_file_atomically(f / "a", "new");
                          if (is_folder) fs::create_directory(dir / "model");
                          write_file_atomically(dir / (is_folder ? "model/a" : "model"), "old");
                      });
                  }),
                  (dir / "model").string() + " exists already: name a folder that does not");
        EXPECT_EQ(read_file(dir / (is_folder ? "model/a" : "model")), "old");
        EXPECT_EQ(entries_in(dir.path()), 1u);
    }
    const TempDir dir;
    write_new_folder_atomically(dir / "model",
                                [](const fs::path& f) { write_file_atomically(f / "a", "new"); });
    EXPECT_EQ(read_file(dir / "model/a"), "new");
    EXPECT_EQ(entries_in(dir.path()), 1u);
}

TEST(AtomicWrite, FolderDoesNotReplaceAFile) {
    const TempDir dir;
    dir.write("run", "a file");
    EXPECT_NE(message_of([&] {
                  write_folder_atomically(dir / "run", [](const fs::path&) {});
              }).find("is no folder"),
              std::string::npos);
    EXPECT_EQ(read_file(dir / "run"), "a file");
}

TEST(AtomicWrite, LeftoversOfKilledWritersGoButNotThoseOfLivingOnes) {
    const TempDir dir;
    dir.write(".a.tmp-1-0", "left by a kill");
    dir.write(".run.tmp-1-0/part", "left by a kill");
    AtomicFile living(dir / "a");
    living.write("living", 6);
    write_file_atomically(dir / "a", "second");
    EXPECT_FALSE(fs::exists(dir / ".a.tmp-1-0"));
    living.commit();
    EXPECT_EQ(read_file(dir / "a"), "living");
    write_folder_atomically(dir / "run", [](const fs::path&) {});
    EXPECT_EQ(entries_in(dir.path()), 2u);
}

TEST(AtomicWrite, AFolderSetAsideByAKillComesBack) {
    const TempDir dir;
    dir.write(".run.old/a", "old");
    EXPECT_EQ(message_of([&] {
                  write_folder_atomically(dir / "run",
                                          [](const fs::path&) { throw Error("stop"); });
              }),
              "stop");
    EXPECT_EQ(read_file(dir / "run/a"), "old");
}

// A limit on the size of files stands in for the full disk where no file system can be mounted.
TEST(AtomicWrite, AWriteThatIsRefusedMidwayLeavesTheOldFile) {
    const TempDir dir;
    write_file_atomically(dir / "a", "old");
    const int status = in_child([&] {
        signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{10000, 10000};
        setrlimit(RLIMIT_FSIZE, &limit);
        return message_of([&] { write_file_atomically(dir / "a", std::string(20000, 'x')); }) ==
                       (dir / "a").string() + ": cannot be written: File too large"
                   ? 0
                   : 1;
    });
    EXPECT_EQ(status, 0);
    EXPECT_EQ(read_file(dir / "a"), "old");
    EXPECT_EQ(entries_in(dir.path()), 1u);
}

TEST(AtomicWrite, AFullDiskLeavesTheOldFileAndFolder) {
    constexpr int kCannotMount = 77;
    const TempDir dir;
    const int status = in_child([&]() -> int {
        // A mount of the child's own; an ordinary user gets it inside a user namespace.
        if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
            return kCannotMount;
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
        if (mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=64k") != 0) return kCannotMount;
        write_file_atomically(dir / "a", "old");
        write_folder_atomically(dir / "run",
                                [](const fs::path& f) { write_file_atomically(f / "a", "old"); });
        const std::string large(200000, 'x');
        const std::string file_error = message_of([&] { write_file_atomically(dir / "a", large); });
        if (file_error != (dir / "a").string() + ": cannot be written: No space left on device") {
            fprintf(stderr, "%s\n", file_error.c_str());
            return 1;
        }
        const std::string folder_error = message_of([&] {
            write_folder_atomically(
                dir / "run", [&](const fs::path& f) { write_file_atomically(f / "a", large); });
        });
        if (folder_error.find("No space left on device") == std::string::npos) return 2;
        if (read_file(dir / "a") != "old" || read_file(dir / "run/a") != "old") return 3;
        return entries_in(dir.path()) == 2 ? 0 : 4;
    });
    if (status == kCannotMount) GTEST_SKIP() << "no file system can be mounted here";
    EXPECT_EQ(status, 0);
}

// A child writes versions of a file and a folder in a loop and is killed at some moment: what is
// there is always one whole version.
TEST(AtomicWrite, AKillLeavesOldOrNewWhole) {
    const TempDir dir;
    const auto write_version = [&](int version) {
        const std::string content(50000, static_cast<char>('a' + version % 26));
        write_file_atomically(dir / "file", content);
        write_folder_atomically(dir / "folder", [&](const fs::path& folder) {
            write_file_atomically(folder / "one", content);
            write_file_atomically(folder / "two", content);
        });
    };
    write_version(0);
    for (int round = 0; round < 25; ++round) {
        const pid_t child = fork();
        if (child == 0) {
            for (int version = round;; ++version)
                write_version(version);
        }
        std::this_thread::sleep_for(std::chrono::microseconds(1000 + 1713 * round));
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
        const std::string file = read_file(dir / "file");
        ASSERT_EQ(file.size(), 50000u);
        EXPECT_EQ(file, std::string(50000, file[0]));
        ASSERT_EQ(entries_in(dir / "folder"), 2u) << "round " << round;
        const std::string one = read_file(dir / "folder/one");
        ASSERT_EQ(one.size(), 50000u);
        EXPECT_EQ(one, std::string(50000, one[0]));
        EXPECT_EQ(read_file(dir / "folder/two"), one);
    }
    write_version(1);
    EXPECT_EQ(entries_in(dir.path()), 2u) << "leftovers were removed";
}

}  // namespace
}  // namespace garam
