#include "garam/serve/scoring.h"

#include <gtest/gtest.h>

#include <cmath>

#include "garam/core/philox.h"
#include "garam/serve/session.h"
#include "testing/temp_dir.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

using testing::TempDir;
using testing::write_tiny_model;

TEST(LogProbability, ByHand) {
    const std::vector<float> logits{0, std::log(2.0f), std::log(5.0f)};
    // The logits themselves are rounded to fp32.
    EXPECT_NEAR(log_probability(logits, 0), std::log(1.0 / 8), 1e-7);
    EXPECT_NEAR(log_probability(logits, 1), std::log(2.0 / 8), 1e-7);
    EXPECT_NEAR(log_probability(logits, 2), std::log(5.0 / 8), 1e-7);
    EXPECT_EQ(log_probability(std::vector<float>{1000, -1000}, 1), -2000);
}

TEST(Likeliest, LowestOfSeveral) {
    EXPECT_EQ(likeliest({-3, -1, -2, -1}), 1);
}

// The same numbers from the path that training evaluates with: whole sequences, no cache. Both sum logits in
// another order; losses of about 5 differ by a few units of 2^-24 each, 1e-5 leaves room for 20 of them.
TEST(Scoring, AgreesWithTheLossesOfWholeSequences) {
    const TempDir dir;
    write_tiny_model(dir / "model");
    Session session({.model = dir / "model", .dtype = "f32"});
    const std::vector<std::vector<std::int32_t>> candidates = {{70, 71, 258}, {80, 258}, {90}};
    Sequence sequence(session);
    for (const std::uint64_t seed : {1, 2, 3}) {
        Random random(seed);
        std::vector<std::int32_t> prompt{10, 11, 12};  // a beginning that rows share
        for (int i = 0; i < 9; ++i)
            prompt.push_back(static_cast<std::int32_t>(random.below(256)));
        const std::vector<double> scores = score_continuations(sequence, prompt, candidates);
        ASSERT_EQ(scores.size(), candidates.size());
        for (std::size_t c = 0; c < candidates.size(); ++c) {
            std::vector<std::int32_t> ids = prompt;
            ids.insert(ids.end(), candidates[c].begin(), candidates[c].end());
            std::vector<std::int32_t> labels(prompt.size(), kIgnore);
            labels.insert(labels.end(), candidates[c].begin(), candidates[c].end());
            TokenBatch batch;
            batch.append(ids, labels, 0);
            const TokenLoss loss = evaluate_losses(session, {batch});
            EXPECT_EQ(loss.targets, static_cast<std::int64_t>(candidates[c].size()));
            EXPECT_NEAR(scores[c], -loss.sum, 1e-5 * loss.sum);
            EXPECT_LT(scores[c], 0);
        }
    }
}

TEST(TokenLoss, PerplexityDoesNotDependOnTheCut) {
    const TempDir dir;
    write_tiny_model(dir / "model");
    Session session({.model = dir / "model", .dtype = "f32"});
    TokenBatch together;
    std::vector<TokenBatch> single;
    for (std::int64_t s = 0; s < 5; ++s) {
        Random random(static_cast<std::uint64_t>(s));
        std::vector<std::int32_t> ids;
        for (std::int64_t i = 0; i < 3 + 7 * s; ++i)
            ids.push_back(static_cast<std::int32_t>(random.below(256)));
        together.append(ids, ids, s);
        single.emplace_back().append(ids, ids, s);
    }
    std::int64_t heard = 0;
    const TokenLoss one = evaluate_losses(session, {together});
    const TokenLoss many =
        evaluate_losses(session, single, [&](std::int64_t done) { heard = done; });
    EXPECT_EQ(heard, 5);
    EXPECT_EQ(one.targets, 2 + 9 + 16 + 23 + 30);
    EXPECT_EQ(many.targets, one.targets);
    EXPECT_NEAR(many.mean(), one.mean(), 1e-5 * one.mean());
    EXPECT_DOUBLE_EQ(one.perplexity(), std::exp(one.sum / static_cast<double>(one.targets)));
}

}  // namespace
}  // namespace garam
