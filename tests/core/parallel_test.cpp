#include "garam/core/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace garam {
namespace {

TEST(Parallel, CoversEveryIndexOnce) {
    for (const std::int64_t count : {0, 1, 7, 64, 1000}) {
        for (const std::int64_t grain : {1, 3, 64, 5000}) {
            std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
            parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
                EXPECT_EQ(begin % grain, 0);
                for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
            });
            for (const auto& times : seen) EXPECT_EQ(times, 1);
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

}  // namespace
}  // namespace garam
