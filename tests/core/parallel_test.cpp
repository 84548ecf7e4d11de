#include "garam/core/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace garam {
namespace {

TEST(Parallel, CoversEveryIndexOnce) {
    for (const std::int64_t count : {0, 1, 7, 64, 1000}) {
        for (const std::int64_t grain : {1, 3, 64, 5000}) {
            std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
            parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
                EXPECT_EQ(begin % grain, 0);
                for (std::int64_t i = begin; i < end; ++i)
                    ++seen[static_cast<std::size_t>(i)];
            });
            for (const auto& times : seen)
                EXPECT_EQ(times, 1);
        }
    }
}

TEST(Parallel, RethrowsFromABody) {
    EXPECT_THROW(parallel_for(8, 1,
                              [](std::int64_t begin, std::int64_t) {
                                  if (begin == 5) throw std::runtime_error("five");
                              }),
                 std::runtime_error);
}

TEST(Parallel, NestedAndConcurrentCallsComplete) {
    std::atomic<std::int64_t> sum = 0;
    const auto work = [&] {
        parallel_for(50, 1, [&](std::int64_t begin, std::int64_t) {
            parallel_for(10, 1,
                         [&](std::int64_t inner, std::int64_t) { sum += begin * 10 + inner; });
        });
    };
    for (int round = 0; round < 200; ++round) {
        sum = 0;
        std::thread other(work);
        work();
        other.join();
        ASSERT_EQ(sum, 2 * 500 * 499 / 2);
    }
}

TEST(Parallel, AnotherNumberOfThreads) {
    const int before = num_threads();
    for (const int threads : {1, 3, 2, 5}) {
        set_num_threads(threads);
        EXPECT_EQ(num_threads(), threads);
        std::atomic<int> pieces = 0;
        parallel_for(100, 7, [&](std::int64_t, std::int64_t) { ++pieces; });
        EXPECT_EQ(pieces, 15);
    }
    set_num_threads(before);
}

// A fork takes none of the workers along.
TEST(Parallel, WorksInAForkedChild) {
    parallel_for(64, 1, [](std::int64_t, std::int64_t) {});
    const pid_t child = fork();
    if (child == 0) {
        std::atomic<int> pieces = 0;
        parallel_for(64, 1, [&](std::int64_t, std::int64_t) { ++pieces; });
        _exit(pieces == 64 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace garam
