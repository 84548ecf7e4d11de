#include "garam/data/samples/sample_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>

#include "data/expect_error.h"
#include "garam/core/philox.h"
#include "testing/temp_dir.h"

namespace garam {
namespace {

namespace fs = std::filesystem;

Json key_of(int number) {
    Json key;
    key.set("files", Json(Json::Array{Json("a.jsonl")}));
    key.set("number", number);
    return key;
}

ReadReport write_rows(SampleTableWriter& writer, int number, int rows = 20) {
    ReadReport report;
    for (int i = 0; i < rows; ++i) {
        writer.append({{number, i, i + 1}, {kIgnore, i, i + 1}, i}, 3);
        ++report.kept;
    }
    return report;
}

void expect_rows(const SampleTable& table, int number, int rows = 20) {
    ASSERT_EQ(table.size(), rows);
    for (int i = 0; i < rows; ++i)
        ASSERT_EQ(table.sample(i).ids, (std::vector<std::int32_t>{number, i, i + 1}));
}

pid_t in_child(const std::function<void()>& work) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    try {
        work();
    } catch (...) {
        ::_exit(1);
    }
    ::_exit(0);
}

std::vector<std::string> hidden_names(const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder))
        if (entry.path().filename().string().starts_with('.'))
            names.push_back(entry.path().filename().string());
    return names;
}

class SampleCacheFolder : public ::testing::Test {
  protected:
    // Whether it was made.
    bool get(SampleCache& cache, int number) {
        const auto found =
            cache.get(key_of(number), [&](auto& writer) { return write_rows(writer, number); });
        expect_rows(found.table, number);
        return found.made;
    }
    fs::path entry(int number) const { return folder_ / content_digest(key_of(number).dump()); }

    testing::TempDir dir_;
    fs::path folder_ = dir_ / "cache" / "data";
};

TEST_F(SampleCacheFolder, MakesOnceAndIsFoundFromAnyFolder) {
    {
        SampleCache cache(folder_);
        EXPECT_TRUE(get(cache, 1));
        EXPECT_FALSE(get(cache, 1));
        EXPECT_TRUE(get(cache, 2));
        EXPECT_TRUE(cache.take_notes().empty());
    }
    const fs::path before = fs::current_path();
    fs::current_path(dir_.path());
    SampleCache cache("cache/data");  // the same, from another folder
    EXPECT_FALSE(get(cache, 1));
    fs::rename("cache", "moved");
    SampleCache moved(dir_ / "moved" / "data");
    EXPECT_FALSE(get(moved, 2));
    fs::current_path(before);
}

TEST_F(SampleCacheFolder, RowsThatFailLeaveNothing) {
    SampleCache cache(folder_);
    EXPECT_ERROR(cache.get(key_of(1),
                           [&](auto& writer) -> ReadReport {
                               write_rows(writer, 1);
                               throw Error("a.jsonl:7: broken");
                           }),
                 "a.jsonl:7: broken");
    EXPECT_TRUE(hidden_names(folder_).empty());
    EXPECT_TRUE(cache.list().empty());
    EXPECT_TRUE(cache.take_notes().empty());
    EXPECT_TRUE(get(cache, 1));
}

// datasets 6319 and 6924: a cache that hangs or is lost after a kill.
TEST_F(SampleCacheFolder, SurvivesKillsAtAnyMoment) {
    Random random(1);
    int killed_before = 0;
    constexpr int kKills = 150;
    for (int i = 0; i < kKills; ++i) {
        const int number = i % 5;
        const pid_t child = in_child([&] {
            SampleCache cache(folder_);
            cache.get(key_of(number),
                      [&](auto& writer) { return write_rows(writer, number, 20000); });
        });
        ASSERT_GT(child, 0);
        ::usleep(static_cast<useconds_t>(random.below(12000)));
        ::kill(child, SIGKILL);
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        killed_before += WIFSIGNALED(status);
        SampleCache cache(folder_);
        if (i % 3 == 0) {  // go on after the kill
            const auto found = cache.get(
                key_of(number), [&](auto& writer) { return write_rows(writer, number, 20000); });
            expect_rows(found.table, number, 20000);
            EXPECT_TRUE(cache.take_notes().empty());
        }
        for (const SampleCache::Entry& one : cache.list())
            EXPECT_EQ(one.samples, 20000);              // whole, or not there
        if (i % 2 == 0) fs::remove_all(entry(number));  // else there is nothing to make
    }
    EXPECT_GT(killed_before, 0);  // how many depends on how busy the machine is
    SampleCache cache(folder_);
    get(cache, 77);  // whoever makes the next one removes what is left
    EXPECT_TRUE(hidden_names(folder_).empty());
}

TEST_F(SampleCacheFolder, SeveralProcessesMakeOneEntryOnce) {
    const fs::path log = dir_ / "made";
    std::vector<pid_t> children;
    for (int i = 0; i < 6; ++i) {
        children.push_back(in_child([&] {
            SampleCache cache(folder_);
            const auto found = cache.get(key_of(1), [&](auto& writer) {
                std::ofstream(log, std::ios::app) << "made\n";
                ::usleep(50000);
                return write_rows(writer, 1);
            });
            if (found.table.size() != 20 || !cache.take_notes().empty()) ::_exit(2);
        }));
    }
    for (const pid_t child : children) {
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
    }
    EXPECT_EQ(fs::file_size(log), 5u);
}

TEST_F(SampleCacheFolder, DamagedEntriesAreMadeAgainWithANote) {
    SampleCache cache(folder_);
    EXPECT_TRUE(get(cache, 1));
    const fs::path samples = entry(1) / "samples";
    const auto expect_made_again = [&](const char* what) {
        EXPECT_TRUE(get(cache, 1)) << what;
        const auto notes = cache.take_notes();
        ASSERT_EQ(notes.size(), 1u) << what;
        EXPECT_NE(notes[0].find("made again"), std::string::npos) << notes[0];
        EXPECT_FALSE(get(cache, 1)) << what;
    };
    fs::resize_file(samples, fs::file_size(samples) - 1);
    expect_made_again("shorter");
    fs::resize_file(samples, fs::file_size(samples) + 8);
    expect_made_again("longer");
    fs::resize_file(samples, 0);
    expect_made_again("empty");
    fs::remove(samples);
    expect_made_again("gone");
    fs::remove_all(entry(1));
    std::ofstream(entry(1)) << "a file";
    expect_made_again("a file in its place");
}

TEST_F(SampleCacheFolder, WithoutAFolderSamplesAreNotKept) {
    SampleCache none("");
    EXPECT_TRUE(get(none, 1));
    EXPECT_TRUE(get(none, 1));
    EXPECT_TRUE(none.take_notes().empty());
    EXPECT_TRUE(none.list().empty());
    const fs::path file = dir_.write("file", "x");
    SampleCache impossible(file / "cache");
    EXPECT_TRUE(get(impossible, 1));
    EXPECT_TRUE(get(impossible, 1));
    const auto notes = impossible.take_notes();
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_NE(notes[0].find("data.cache_dir"), std::string::npos);
    EXPECT_EQ(impossible.digest_of(file), content_digest("x"));
}

TEST_F(SampleCacheFolder, AFullDiskFallsBackToATemporaryFile) {
    if (::getuid() != 0 || ::access("/dev/shm", W_OK) != 0)
        GTEST_SKIP() << "needs root, for a small file system of its own";
    fs::create_directories(folder_);
    const std::string mount = "mount -t tmpfs -o size=1m none '" + folder_.string() + "' 2>&1";
    if (std::system(mount.c_str()) != 0) GTEST_SKIP() << "no file system can be mounted here";
    SampleCache cache(folder_);
    int calls = 0;
    const auto found = cache.get(key_of(1), [&](auto& writer) {
        ++calls;
        return write_rows(writer, 1, 100000);
    });
    const bool made = found.made;
    const auto notes = cache.take_notes();
    const auto left = hidden_names(folder_);
    EXPECT_EQ(std::system(("umount '" + folder_.string() + "'").c_str()), 0);
    EXPECT_TRUE(made);
    EXPECT_EQ(calls, 2);
    expect_rows(found.table, 1, 100000);
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_NE(notes[0].find("No space left"), std::string::npos) << notes[0];
    EXPECT_TRUE(left.empty());
}

void set_age(const fs::path& file, std::int64_t seconds) {
    const std::time_t then = std::time(nullptr) - seconds;
    const timespec times[2] = {{then, 0}, {then, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
}

TEST_F(SampleCacheFolder, ListsAndPrunesByAgeAndSize) {
    SampleCache cache(folder_);
    for (int i = 0; i < 4; ++i) {
        get(cache, i);
        set_age(entry(i) / "key.json", 1000 * (i + 1));
    }
    get(cache, 3);  // used just now
    const auto entries = cache.list();
    ASSERT_EQ(entries.size(), 4u);
    std::vector<std::int64_t> order;
    for (const SampleCache::Entry& one : entries) {
        order.push_back(one.key.at("number").integer());
        EXPECT_EQ(one.samples, 20);
        EXPECT_GT(one.bytes, 20 * 12);
        EXPECT_EQ(entry(static_cast<int>(order.back())).filename().string(), one.digest);
    }
    EXPECT_EQ(order, (std::vector<std::int64_t>{3, 0, 1, 2}));
    EXPECT_TRUE(cache.prune(-1, -1).empty());
    auto removed = cache.prune(2500, -1);
    ASSERT_EQ(removed.size(), 1u);
    EXPECT_EQ(removed[0].digest, entries[3].digest);
    removed = cache.prune(-1, entries[0].bytes + entries[1].bytes);
    ASSERT_EQ(removed.size(), 1u);
    EXPECT_EQ(removed[0].digest, entries[2].digest);
    EXPECT_FALSE(get(cache, 3));
    EXPECT_FALSE(get(cache, 0));
    EXPECT_TRUE(get(cache, 2));
    EXPECT_EQ(cache.prune(0, 0).size(), 3u);
    EXPECT_TRUE(cache.list().empty());
    EXPECT_TRUE(fs::is_empty(folder_ / "locks"));
}

TEST_F(SampleCacheFolder, WhatAProcessMakesIsNotPruned) {
    SampleCache cache(folder_);
    cache.get(key_of(1), [&](auto& writer) {
        SampleCache other(folder_);
        EXPECT_TRUE(get(other, 2));  // removes leftovers, and this is none
        EXPECT_EQ(other.prune(0, 0).size(), 1u);
        return write_rows(writer, 1);
    });
    EXPECT_FALSE(get(cache, 1));
}

TEST_F(SampleCacheFolder, LargeFilesAreDigestedOnce) {
    SampleCache cache(folder_);
    std::string text(5 << 20, 'a');
    const fs::path file = dir_.write("rows.jsonl", text);
    // Young: written again within the clock's step it might look the same.
    EXPECT_EQ(cache.digest_of(file), content_digest(text));
    EXPECT_TRUE(fs::is_empty(folder_ / "files"));
    set_age(file, 3600);
    ::usleep(2100000);  // the time of its status' change cannot be set
    EXPECT_EQ(cache.digest_of(file), content_digest(text));
    ASSERT_FALSE(fs::is_empty(folder_ / "files"));
    // Told apart from reading by a memo that says something else.
    const fs::path memo = fs::directory_iterator(folder_ / "files")->path();
    std::ifstream in(memo);
    std::string state;
    std::getline(in, state);
    const std::string other(32, '0');
    std::ofstream(memo) << state << "\n" << other << "\n";
    EXPECT_EQ(cache.digest_of(file), other);
    std::ofstream(memo) << state << "\n" << other.substr(1);  // damaged
    EXPECT_EQ(cache.digest_of(file), content_digest(text));
    std::ofstream(memo) << state << "\n" << other << "\n";
    text[100] = 'b';
    dir_.write("rows.jsonl", text);
    set_age(file, 3600);  // the old times do not hide the change
    EXPECT_EQ(cache.digest_of(file), content_digest(text));
}

TEST(SampleCacheDefault, FollowsTheDesktopsFolders) {
    const char* home = std::getenv("HOME");
    const std::string before = home != nullptr ? home : "";
    ::unsetenv("XDG_CACHE_HOME");
    ::setenv("HOME", "/h", 1);
    EXPECT_EQ(SampleCache::default_folder(), "/h/.cache/garam/data");
    ::setenv("XDG_CACHE_HOME", "/x", 1);
    EXPECT_EQ(SampleCache::default_folder(), "/x/garam/data");
    ::setenv("XDG_CACHE_HOME", "relative", 1);  // to be ignored, says its specification
    EXPECT_EQ(SampleCache::default_folder(), "/h/.cache/garam/data");
    ::unsetenv("XDG_CACHE_HOME");
    ::unsetenv("HOME");
    EXPECT_EQ(SampleCache::default_folder(), "");
    if (home != nullptr) ::setenv("HOME", before.c_str(), 1);
}

}  // namespace
}  // namespace garam
