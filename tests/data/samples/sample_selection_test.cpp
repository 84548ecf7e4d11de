#include "garam/data/samples/sample_selection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "data/expect_error.h"
#include "garam/data/loader.h"

namespace garam {
namespace {

// Samples whose first id tells source and number; rows are 2, 4, 6, …
SampleTable table(int source, int count) {
    std::vector<Sample> samples;
    for (int i = 0; i < count; ++i) {
        const std::int32_t id = source * 10000 + i;
        samples.push_back({{id, i % 7, 3}, {kIgnore, i % 7, kIgnore}, 2 * i + 2});
    }
    return table_of(samples);
}

// How often each sample is taken, by its first id.
std::map<std::int32_t, int> times(const SampleSelection& selection) {
    std::map<std::int32_t, int> counts;
    for (std::int64_t i = 0; i < selection.size(); ++i) {
        TokenBatch batch;
        selection.append_to(batch, i);
        ++counts[batch.ids.at(0)];
        EXPECT_EQ(batch.sample_ids.at(0), selection.id(i));
        EXPECT_EQ(batch.tokens(), selection.tokens(i));
        EXPECT_EQ(batch.num_targets(), selection.targets(i));
        const auto origin = selection.origin(selection.id(i));
        EXPECT_EQ(origin.source, batch.ids[0] / 10000);
        EXPECT_EQ(origin.row, 2 * (batch.ids[0] % 10000) + 2);
    }
    return counts;
}

std::set<std::int64_t> ids(const SampleSelection& selection) {
    std::set<std::int64_t> all;
    for (std::int64_t i = 0; i < selection.size(); ++i)
        all.insert(selection.id(i));
    return all;
}

TEST(SampleSelection, OfOneTableIsTheTable) {
    const SampleTable one = table(1, 9);
    const SampleSelection all(one);
    ASSERT_EQ(all.size(), 9);
    for (std::int64_t i = 0; i < 9; ++i)
        EXPECT_EQ(all.id(i), one.row(i));
    EXPECT_EQ(all.fingerprint(), one.fingerprint());
    EXPECT_EQ(select_samples({{one, 1}}, 3).fingerprint(), one.fingerprint());
    EXPECT_TRUE(SampleSelection().empty());
    EXPECT_TRUE(SampleSelection(SampleTable()).empty());
    EXPECT_THROW(all.tokens(9), Bug);
    EXPECT_THROW(all.tokens(-1), Bug);
}

TEST(SampleSelection, WeightsArePassesAndAShareChosenBySeed) {
    const std::vector<WeightedTable> tables = {
        {table(0, 100), 2.3}, {table(1, 50), 0.5}, {table(2, 10), 1}, {table(3, 10), 0}};
    const SampleSelection selection = select_samples(tables, 7);
    EXPECT_EQ(selection.size(), 230 + 25 + 10);
    std::map<int, std::map<int, int>> by_times;  // source -> times -> samples
    for (const auto& [id, count] : times(selection))
        ++by_times[id / 10000][count];
    EXPECT_EQ(by_times[0], (std::map<int, int>{{2, 70}, {3, 30}}));
    EXPECT_EQ(by_times[1], (std::map<int, int>{{1, 25}}));
    EXPECT_EQ(by_times[2], (std::map<int, int>{{1, 10}}));
    EXPECT_EQ(by_times.count(3), 0u);
    EXPECT_EQ(ids(selection).size(), static_cast<std::size_t>(selection.size()));  // none twice
    EXPECT_EQ(times(select_samples(tables, 7)), times(selection));
    EXPECT_NE(times(select_samples(tables, 8)), times(selection));
    EXPECT_EQ(select_samples(tables, 7).fingerprint(), selection.fingerprint());
    EXPECT_NE(select_samples(tables, 8).fingerprint(), selection.fingerprint());
    auto others = tables;
    others[2].weight = 2;
    EXPECT_NE(select_samples(others, 7).fingerprint(), selection.fingerprint());
    for (const double bad : {-1.0, 1e9, std::numeric_limits<double>::quiet_NaN()})
        EXPECT_ERROR(select_samples({{table(0, 3), bad}}, 1), "data.weights");
}

TEST(SampleSelection, ASharesSamplesAreEachAsLikely) {
    const std::vector<WeightedTable> tables = {{table(0, 20), 0.25}};
    std::map<std::int32_t, int> counts;
    constexpr int kSeeds = 4000;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed)
        for (const auto& [id, count] : times(select_samples(tables, seed)))
            counts[id] += count;
    // A quarter of the seeds each: sigma sqrt(4000 / 4 * 3 / 4) = 27; 5 sigma.
    ASSERT_EQ(counts.size(), 20u);
    for (const auto& [id, count] : counts)
        EXPECT_NEAR(count, kSeeds / 4, 137) << id;
}

TEST(SampleSelection, WhatIsHeldOutIsNotTrainedOn) {
    const std::vector<WeightedTable> tables = {{table(0, 100), 2.5}, {table(1, 40), 0.5}};
    const SampleSplit split = hold_out(tables, 0.1, 7);
    const auto held = times(split.held_out);
    const auto trained = times(split.training);
    EXPECT_EQ(held.size(), 14u);
    for (const auto& [id, count] : held) {
        EXPECT_EQ(count, 1);
        EXPECT_EQ(trained.count(id), 0u);
    }
    EXPECT_EQ(split.training.size(), 2 * 90 + 45 + 18);
    EXPECT_EQ(trained.size(), 90u + 18u);
    EXPECT_EQ(ids(split.training).size(), static_cast<std::size_t>(split.training.size()));
    EXPECT_EQ(times(hold_out(tables, 0.1, 7).held_out), held);
    EXPECT_NE(times(hold_out(tables, 0.1, 8).held_out), held);
    // Weights do not change what is held out.
    EXPECT_EQ(times(hold_out({{tables[0].table, 1}, {tables[1].table, 9}}, 0.1, 7).held_out), held);
    EXPECT_NE(split.training.fingerprint(), select_samples(tables, 7).fingerprint());

    const SampleSplit tiny = hold_out({{table(0, 2), 1}}, 0.01, 1);
    EXPECT_EQ(tiny.held_out.size(), 1);
    EXPECT_EQ(tiny.training.size(), 1);
    EXPECT_EQ(hold_out({{table(0, 2), 1}}, 0.99, 1).training.size(), 1);
    EXPECT_ERROR(hold_out({{table(0, 1), 1}}, 0.5, 1), "too few samples");
    EXPECT_ERROR(hold_out(tables, 1.0, 1), "data.validation_fraction");
    EXPECT_ERROR(hold_out(tables, 0.0, 1), "data.validation_fraction");
}

TEST(SampleSelection, IsLoadedEachSampleAsOftenAsItIsTaken) {
    const SampleSelection selection = select_samples({{table(0, 30), 1.5}, {table(1, 20), 1}}, 2);
    const Loader loader(selection, {4, 2, 64, true, true, 2});
    std::map<std::int32_t, int> seen;
    for (std::int64_t s = 0; s < loader.steps_per_epoch(); ++s)
        for (const TokenBatch& batch : loader.step(s))
            for (std::size_t i = 0; i + 1 < batch.cu_seqlens.size(); ++i)
                ++seen[batch.ids[static_cast<std::size_t>(batch.cu_seqlens[i])]];
    EXPECT_EQ(seen, times(selection));
}

}  // namespace
}  // namespace garam
