// Each filter against cases computed by hand, their order, and the drawn frequencies against the
// distribution.
#include "garam/serve/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "garam/core/error.h"

namespace garam {
namespace {

// Logits whose softmax is the probabilities given.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
    std::vector<float> logits;
    for (const double p : probabilities)
        logits.push_back(static_cast<float>(std::log(p)));
    return logits;
}

std::vector<std::int32_t> ids_of(const std::vector<Candidate>& candidates) {
    std::vector<std::int32_t> ids;
    for (const Candidate& candidate : candidates)
        ids.push_back(candidate.id);
    return ids;
}

using Ids = std::vector<std::int32_t>;

TEST(Greedy, TakesTheLowestOfTheLikeliest) {
    EXPECT_EQ(greedy_choice(std::vector<float>{0.5f, 2, -1, 2}), 1);
    EXPECT_EQ(greedy_choice(std::vector<float>{-3}), 0);
    const float infinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(greedy_choice(std::vector<float>{-infinity, -5}), 1);
}

TEST(Greedy, RefusesDamagedLogits) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float infinity = std::numeric_limits<float>::infinity();
    EXPECT_THROW(greedy_choice(std::vector<float>{1, nan}), Error);
    EXPECT_THROW(greedy_choice(std::vector<float>{nan, 1}), Error);
    EXPECT_THROW(greedy_choice(std::vector<float>{1, infinity}), Error);
    EXPECT_THROW(greedy_choice(std::vector<float>{-infinity, -infinity}), Error);
}

TEST(RepetitionPenalty, DividesPositiveAndMultipliesNegativeOnce) {
    std::vector<float> logits{2, -1, 4, 0, -3};
    apply_repetition_penalty(logits, Ids{0, 1, 0, 3, 1}, 2);
    EXPECT_EQ(logits, (std::vector<float>{1, -2, 4, 0, -3}));
}

TEST(Distribution, TemperatureDividesLogits) {
    const std::vector<float> logits{0, 1};
    for (const double temperature : {0.5, 1.0, 2.0}) {
        const auto kept = filtered_distribution(logits, {.temperature = temperature});
        ASSERT_EQ(ids_of(kept), (Ids{1, 0}));
        // Logits are exact here; the rest is double arithmetic.
        EXPECT_NEAR(kept[0].probability, 1 / (1 + std::exp(-1 / temperature)), 1e-15);
        EXPECT_NEAR(kept[0].probability + kept[1].probability, 1, 1e-15);
    }
}

TEST(Distribution, TopKKeepsTiesWithTheLast) {
    const std::vector<float> logits{1, 3, 2, 2, 0};
    EXPECT_EQ(ids_of(filtered_distribution(logits, {.temperature = 1, .top_k = 1})), (Ids{1}));
    EXPECT_EQ(ids_of(filtered_distribution(logits, {.temperature = 1, .top_k = 2})),
              (Ids{1, 2, 3}));
    EXPECT_EQ(ids_of(filtered_distribution(logits, {.temperature = 1, .top_k = 3})),
              (Ids{1, 2, 3}));
    EXPECT_EQ(ids_of(filtered_distribution(logits, {.temperature = 1, .top_k = 99})),
              (Ids{1, 2, 3, 0, 4}));
}

TEST(Distribution, TopPKeepsTheFewestThatReachIt) {
    const std::vector<float> logits = logits_of({0.1, 0.5, 0.15, 0.25});
    const auto kept = [&](double top_p) {
        return ids_of(filtered_distribution(logits, {.temperature = 1, .top_p = top_p}));
    };
    EXPECT_EQ(kept(0.01), (Ids{1}));
    EXPECT_EQ(kept(0.49), (Ids{1}));
    EXPECT_EQ(kept(0.51), (Ids{1, 3}));
    EXPECT_EQ(kept(0.74), (Ids{1, 3}));
    EXPECT_EQ(kept(0.76), (Ids{1, 3, 2}));
    EXPECT_EQ(kept(0.95), (Ids{1, 3, 2, 0}));
    EXPECT_EQ(kept(1), (Ids{1, 3, 2, 0}));
}

TEST(Distribution, MinPIsAShareOfTheLikeliest) {
    const std::vector<float> logits = logits_of({0.1, 0.5, 0.15, 0.25});
    const auto kept = [&](double min_p) {
        return ids_of(filtered_distribution(logits, {.temperature = 1, .min_p = min_p}));
    };
    EXPECT_EQ(kept(0.19), (Ids{1, 3, 2, 0}));
    EXPECT_EQ(kept(0.21), (Ids{1, 3, 2}));
    EXPECT_EQ(kept(0.31), (Ids{1, 3}));
    EXPECT_EQ(kept(1), (Ids{1}));
}

TEST(Distribution, TopPCountsWhatTopKLeft) {
    // Of all four, 0.5 and 0.25 hold 0.75; of the two that top-k leaves, 0.5 alone holds 2/3.
    const std::vector<float> logits = logits_of({0.1, 0.5, 0.15, 0.25});
    EXPECT_EQ(ids_of(filtered_distribution(logits, {.temperature = 1, .top_k = 2, .top_p = 0.6})),
              (Ids{1}));
    const auto both = filtered_distribution(logits, {.temperature = 1, .top_k = 2, .top_p = 0.7});
    ASSERT_EQ(ids_of(both), (Ids{1, 3}));
    EXPECT_NEAR(both[0].probability, 2.0 / 3, 1e-6);  // logits are rounded to fp32
}

TEST(Distribution, TemperatureComesBeforeTopP) {
    // At temperature 1/2 probabilities are squared: 0.25 / (0.25 + 0.0625 + 0.0225 + 0.01) = 0.72.
    const std::vector<float> logits = logits_of({0.1, 0.5, 0.15, 0.25});
    EXPECT_EQ(ids_of(filtered_distribution(logits, {.temperature = 0.5, .top_p = 0.7})), (Ids{1}));
    EXPECT_EQ(ids_of(filtered_distribution(logits, {.temperature = 1, .top_p = 0.7})), (Ids{1, 3}));
}

TEST(Sampler, DrawsTheDistribution) {
    const std::vector<double> wanted{0.1, 0.5, 0.15, 0.25};
    Sampler sampler({.temperature = 1, .seed = 3});
    const int draws = 20000;
    std::map<std::int32_t, int> counts;
    for (int i = 0; i < draws; ++i) {
        std::vector<float> logits = logits_of(wanted);
        ++counts[sampler.next(logits)];
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        // Five standard deviations of a binomial count: a false alarm in about a million seeds, and
        // the seed is fixed.
        const double deviation = std::sqrt(draws * wanted[i] * (1 - wanted[i]));
        EXPECT_NEAR(counts[static_cast<std::int32_t>(i)], draws * wanted[i], 5 * deviation) << i;
    }
}

TEST(Sampler, SeedFixesTheDraws) {
    const auto draws = [](std::uint64_t seed) {
        Sampler sampler({.temperature = 1, .seed = seed});
        Ids ids;
        for (int i = 0; i < 64; ++i) {
            std::vector<float> logits(16, 0.0f);
            ids.push_back(sampler.next(logits));
        }
        return ids;
    };
    EXPECT_EQ(draws(7), draws(7));
    EXPECT_NE(draws(7), draws(8));
}

TEST(Sampler, PenaltyKnowsPromptAndAnswer) {
    Sampler sampler({.repetition_penalty = 4});
    sampler.see(Ids{2});
    Ids ids;
    for (int i = 0; i < 3; ++i) {
        std::vector<float> logits{3, 4, 5, 1};
        ids.push_back(sampler.next(logits));
    }
    // 5 is known from the prompt: 1.25. Then 4 becomes 1, then 3 becomes 0.75: 1.25 is the largest.
    EXPECT_EQ(ids, (Ids{1, 0, 2}));
}

TEST(SamplingOptions, OutOfRangeIsRefusedByName) {
    const auto message = [](const SamplingOptions& options) -> std::string {
        try {
            options.check();
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    const double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_EQ(message({}), "");
    EXPECT_NE(message({.temperature = -1}).find("temperature"), std::string::npos);
    EXPECT_NE(message({.temperature = nan}).find("temperature"), std::string::npos);
    EXPECT_NE(message({.top_k = -1}).find("top-k"), std::string::npos);
    EXPECT_NE(message({.top_p = 0}).find("top-p"), std::string::npos);
    EXPECT_NE(message({.top_p = 1.5}).find("top-p"), std::string::npos);
    EXPECT_NE(message({.min_p = -0.1}).find("min-p"), std::string::npos);
    EXPECT_NE(message({.repetition_penalty = 0}).find("repetition-penalty"), std::string::npos);
}

}  // namespace
}  // namespace garam
