#include "garam/data/prefetching_loader.h"

#include <gtest/gtest.h>

#include "garam/core/error.h"

namespace garam {
namespace {

std::vector<Sample> make_samples(int count) {
    std::vector<Sample> samples;
    for (std::int32_t i = 0; i < count; ++i)
        samples.push_back({{i, i + 1}, {i, i + 1}, i});
    return samples;
}

TEST(PrefetchingLoader, GivesTheStepsOfTheLoaderForAnyNumberOfWorkers) {
    const auto samples = make_samples(100);
    for (const bool packing : {false, true}) {
        const Loader loader(table_of(samples), {2, 2, 64, packing, true, 1});
        for (const std::int64_t workers : {0, 1, 2, 5, 1000}) {
            const std::int64_t end = 3 * loader.steps_per_epoch() + 1;
            PrefetchingLoader ahead(loader, 1, end, workers);
            for (std::int64_t s = 1; s < end; ++s) {
                ASSERT_FALSE(ahead.done());
                const auto got = ahead.next();
                const auto expected = loader.step(s);
                ASSERT_EQ(got.size(), expected.size());
                for (std::size_t i = 0; i < got.size(); ++i) {
                    EXPECT_EQ(got[i].ids, expected[i].ids);
                    EXPECT_EQ(got[i].sample_ids, expected[i].sample_ids);
                }
            }
            EXPECT_TRUE(ahead.done());
            EXPECT_THROW(ahead.next(), Bug);
        }
    }
}

TEST(PrefetchingLoader, RethrowsAndStaysStopped) {
    const auto samples = make_samples(10);
    const Loader loader(table_of(samples), {2, 2, 64, false, true, 1});
    for (const std::int64_t workers : {1, 3}) {
        PrefetchingLoader ahead(loader, -1, 3, workers);  // steps count from 0
        EXPECT_THROW(ahead.next(), Bug);
        EXPECT_THROW(ahead.next(), Bug);
        EXPECT_FALSE(ahead.done());
    }
}

TEST(PrefetchingLoader, EndsWithAStepUnderWay) {
    const auto samples = make_samples(5000);
    const Loader loader(table_of(samples), {5000, 1, 64, true, true, 1});
    for (int i = 0; i < 20; ++i) {
        PrefetchingLoader ahead(loader, i, 100, i % 4);
        if (i % 2 == 0) {
            EXPECT_EQ(ahead.next().size(), 1u);
        }
    }
    PrefetchingLoader nothing(loader, 4, 4);
    EXPECT_TRUE(nothing.done());
}

}  // namespace
}  // namespace garam
