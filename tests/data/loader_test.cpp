#include "garam/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "data/expect_error.h"
#include "garam/core/philox.h"

namespace garam {
namespace {

// Samples whose ids tell row and position (row * 1000 + t); every `masked`-th label is no target.
std::vector<Sample> make_samples(const std::vector<std::int64_t>& lengths) {
    std::vector<Sample> samples;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        Sample sample;
        sample.row = static_cast<std::int64_t>(i) * 2 + 5;  // rows were dropped in between
        for (std::int64_t t = 0; t < lengths[i]; ++t) {
            sample.ids.push_back(
                static_cast<std::int32_t>(static_cast<std::int64_t>(i) * 1000 + t));
            sample.labels.push_back(t % 3 == 1 ? kIgnore : sample.ids.back());
        }
        samples.push_back(sample);
    }
    return samples;
}

std::vector<Sample> random_samples(std::size_t count, std::int64_t longest, std::uint64_t seed) {
    Random random(seed);
    std::vector<std::int64_t> lengths(count);
    for (auto& length : lengths)
        length =
            2 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(longest - 1)));
    return make_samples(lengths);
}

bool equal(const std::vector<TokenBatch>& a, const std::vector<TokenBatch>& b) {
    return std::equal(
        a.begin(), a.end(), b.begin(), b.end(), [](const TokenBatch& x, const TokenBatch& y) {
            return x.ids == y.ids && x.targets == y.targets && x.positions == y.positions &&
                   x.cu_seqlens == y.cu_seqlens && x.sample_ids == y.sample_ids;
        });
}

std::vector<std::int64_t> rows_of_epoch(const Loader& loader, std::int64_t epoch) {
    std::vector<std::int64_t> rows;
    for (std::int64_t s = 0; s < loader.steps_per_epoch(); ++s) {
        for (const TokenBatch& batch : loader.step(epoch * loader.steps_per_epoch() + s))
            rows.insert(rows.end(), batch.sample_ids.begin(), batch.sample_ids.end());
    }
    return rows;
}

// Each sample of a batch is found whole, with its own positions and targets, none reaching into the
// next sample.
void expect_whole_samples(const TokenBatch& batch, const std::vector<Sample>& samples) {
    ASSERT_EQ(batch.cu_seqlens.size(), batch.sample_ids.size() + 1);
    ASSERT_EQ(batch.cu_seqlens.front(), 0);
    ASSERT_EQ(batch.cu_seqlens.back(), batch.tokens());
    for (std::size_t s = 0; s < batch.sample_ids.size(); ++s) {
        const auto found = std::find_if(samples.begin(), samples.end(), [&](const Sample& sample) {
            return sample.row == batch.sample_ids[s];
        });
        ASSERT_NE(found, samples.end());
        const auto begin = static_cast<std::size_t>(batch.cu_seqlens[s]);
        ASSERT_EQ(batch.cu_seqlens[s + 1] - batch.cu_seqlens[s], found->tokens());
        for (std::size_t t = 0; t < found->ids.size(); ++t) {
            EXPECT_EQ(batch.ids[begin + t], found->ids[t]);
            EXPECT_EQ(batch.positions[begin + t], static_cast<std::int32_t>(t));
            EXPECT_EQ(batch.targets[begin + t],
                      t + 1 < found->ids.size() ? found->labels[t + 1] : kIgnore);
        }
    }
}

TEST(Loader, EverySplitCoversEachSampleOnceAnEpoch) {
    const auto samples = random_samples(53, 40, 1);
    std::vector<std::int64_t> all;
    for (const Sample& sample : samples)
        all.push_back(sample.row);
    for (const bool packing : {false, true}) {
        for (const bool shuffled : {false, true}) {
            for (const std::int64_t rows : {1, 2, 7, 53, 100}) {
                for (const std::int64_t micro : {1, 3, 8, 100}) {
                    const Loader loader(table_of(samples), {rows, micro, 64, packing, shuffled, 9});
                    for (const std::int64_t epoch : {0, 1, 5}) {
                        auto seen = rows_of_epoch(loader, epoch);
                        std::sort(seen.begin(), seen.end());
                        EXPECT_EQ(seen, all) << packing << shuffled << rows << " " << micro;
                    }
                }
            }
        }
    }
}

TEST(Loader, CountsStepsAsTransformersDoes) {
    const auto samples = random_samples(53, 10, 1);
    // ceil(53 / 4) = 14 micro-batches, ceil(14 / 4) = 4 steps: 4 + 4 + 4 + 2, the last one with 1
    // row.
    const Loader loader(table_of(samples), {4, 4, 64, false, true, 1});
    EXPECT_EQ(loader.micro_batches_per_epoch(), 14);
    EXPECT_EQ(loader.steps_per_epoch(), 4);
    for (const std::int64_t epoch : {0, 2}) {
        EXPECT_EQ(loader.step(epoch * 4 + 0).size(), 4u);
        const auto last = loader.step(epoch * 4 + 3);
        ASSERT_EQ(last.size(), 2u);
        EXPECT_EQ(last[0].samples(), 4);
        EXPECT_EQ(last[1].samples(), 1);
    }
    EXPECT_EQ(loader.position(0).epoch, 0);
    EXPECT_EQ(loader.position(11).epoch, 2);
    EXPECT_EQ(loader.position(11).step, 3);
    EXPECT_THROW(loader.position(-1), Bug);
}

TEST(Loader, EpochIsTheShareOfMicroBatchesDone) {
    const auto samples = random_samples(10, 10, 1);
    const Loader loader(table_of(samples), {1, 4, 64, false, true, 1});  // steps of 4, 4, 2 of 10
    EXPECT_DOUBLE_EQ(loader.epoch_at(0), 0.4);
    EXPECT_DOUBLE_EQ(loader.epoch_at(1), 0.8);
    EXPECT_DOUBLE_EQ(loader.epoch_at(2), 1.0);
    EXPECT_DOUBLE_EQ(loader.epoch_at(3), 1.4);
    EXPECT_DOUBLE_EQ(loader.epoch_at(5), 2.0);
}

TEST(Loader, StepIsAFunctionOfItsNumberOnly) {
    const auto samples = random_samples(40, 30, 2);
    for (const bool packing : {false, true}) {
        const LoaderOptions options{3, 2, 64, packing, true, 77};
        const Loader loader(table_of(samples), options);
        const std::int64_t count = 4 * loader.steps_per_epoch();
        std::vector<std::vector<TokenBatch>> forward;
        for (std::int64_t s = 0; s < count; ++s)
            forward.push_back(loader.step(s));
        Random random(1);
        for (int i = 0; i < 60; ++i) {
            const std::uint64_t s = random.below(static_cast<std::uint64_t>(count));
            EXPECT_TRUE(equal(loader.step(static_cast<std::int64_t>(s)), forward[s])) << s;
        }
        const Loader resumed(table_of(samples), options);
        EXPECT_TRUE(equal(resumed.step(count - 1), forward.back()));
        const Loader other(table_of(samples), {3, 2, 64, packing, true, 78});
        EXPECT_FALSE(equal(other.step(0), forward[0]));
    }
}

TEST(Loader, ShufflesEachEpochAnewAndWithoutBias) {
    const auto samples = random_samples(5, 5, 2);
    const Loader loader(table_of(samples), {1, 1, 64, false, true, 5});
    constexpr int kEpochs = 6000;
    constexpr int kOrders = 120;  // 5!, each expected 50 times
    std::map<std::vector<std::int64_t>, int> counts;
    for (int e = 0; e < kEpochs; ++e)
        ++counts[rows_of_epoch(loader, e)];
    ASSERT_EQ(counts.size(), static_cast<std::size_t>(kOrders));
    double chi_squared = 0;
    for (const auto& [order, count] : counts) {
        const double expected = static_cast<double>(kEpochs) / kOrders;
        chi_squared += (count - expected) * (count - expected) / expected;
    }
    // 119 degrees of freedom: mean 119, sigma sqrt(2 * 119) = 15.4; 5 sigma either way.
    EXPECT_NEAR(chi_squared, 119.0, 77.0);
}

TEST(Loader, WithoutShuffleRowsComeInOrder) {
    const auto samples = random_samples(20, 5, 2);
    const Loader loader(table_of(samples), {3, 2, 64, false, false, 5});
    const auto rows = rows_of_epoch(loader, 1);
    EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()));
}

TEST(Loader, GroupsByLengthWithinRunsOfTheShuffledOrder) {
    const auto samples = random_samples(403, 60, 3);
    LoaderOptions options{4, 2, 64, false, true, 9};
    const Loader plain(table_of(samples), options);
    options.group_by_length = true;
    const Loader grouped(table_of(samples), options);
    // 403 / (8 * 4) = 12 steps a run: 96 rows.
    constexpr std::size_t kRun = 96;
    for (const std::int64_t epoch : {0, 3}) {
        auto in_order = rows_of_epoch(plain, epoch);
        auto rows = rows_of_epoch(grouped, epoch);
        ASSERT_EQ(rows.size(), samples.size());
        const auto length = [&](std::int64_t row) {
            return samples[static_cast<std::size_t>((row - 5) / 2)].tokens();
        };
        for (std::size_t begin = 0; begin < rows.size(); begin += kRun) {
            const auto first = static_cast<std::ptrdiff_t>(begin);
            const auto last = static_cast<std::ptrdiff_t>(std::min(begin + kRun, rows.size()));
            for (std::ptrdiff_t i = first + 1; i < last; ++i)
                EXPECT_GE(length(rows[static_cast<std::size_t>(i - 1)]),
                          length(rows[static_cast<std::size_t>(i)]));
            // The same rows as in that part of the shuffled order.
            std::sort(in_order.begin() + first, in_order.begin() + last);
            std::sort(rows.begin() + first, rows.begin() + last);
        }
        EXPECT_EQ(rows, in_order);
    }
}

TEST(Loader, PackedSamplesStayApart) {
    const auto samples = random_samples(60, 40, 3);
    for (const bool packing : {false, true}) {
        const Loader loader(table_of(samples), {2, 3, 100, packing, true, 5});
        for (std::int64_t s = 0; s < loader.steps_per_epoch(); ++s) {
            for (const TokenBatch& batch : loader.step(s))
                expect_whole_samples(batch, samples);
        }
    }
}

TEST(Loader, PackingFillsBinsAndMixesLengthsAcrossSteps) {
    const auto samples = random_samples(400, 60, 3);
    const Loader loader(table_of(samples), {2, 1, 128, true, true, 5});
    EXPECT_GT(loader.packing_efficiency(), 0.98);
    EXPECT_LT(loader.units(), 400);
    std::int64_t tokens = 0;
    for (std::int64_t s = 0; s < loader.steps_per_epoch(); ++s) {
        const auto batches = loader.step(s);
        ASSERT_EQ(batches.size(), 1u);
        EXPECT_LE(batches[0].tokens(), 2 * 128);
        tokens += batches[0].tokens();
    }
    std::int64_t all = 0;
    for (const Sample& sample : samples)
        all += sample.tokens();
    EXPECT_EQ(tokens, all);
    // Bins come longest first out of packing: without another shuffle the first half of the steps
    // would hold the long samples. 200 of 400 random samples: their mean length differs from the
    // mean of all (31) by a sigma of 17 / sqrt(400); 5 sigma are 4.3.
    double first_half = 0;
    double count = 0;
    for (std::int64_t s = 0; s < loader.steps_per_epoch() / 2; ++s) {
        for (const TokenBatch& batch : loader.step(s)) {
            first_half += static_cast<double>(batch.tokens());
            count += static_cast<double>(batch.samples());
        }
    }
    EXPECT_NEAR(first_half / count, static_cast<double>(all) / 400, 4.3);
}

TEST(Loader, LargestBoundsEveryEpochAndIsReached) {
    for (const bool packing : {false, true}) {
        const auto samples = random_samples(9, 20, 4);
        const Loader loader(table_of(samples), {2, 1, 32, packing, true, 5});
        const Loader::Largest& bound = loader.largest();
        Loader::Largest seen;
        for (std::int64_t s = 0; s < 400 * loader.steps_per_epoch(); ++s) {
            for (const TokenBatch& batch : loader.step(s)) {
                seen.tokens = std::max(seen.tokens, batch.tokens());
                seen.longest = std::max(seen.longest, batch.longest());
                seen.samples = std::max(seen.samples, batch.samples());
                seen.targets = std::max(seen.targets, batch.num_targets());
            }
        }
        EXPECT_EQ(bound.tokens, seen.tokens);
        EXPECT_EQ(bound.longest, seen.longest);
        EXPECT_EQ(bound.samples, seen.samples);
        EXPECT_GE(bound.targets, seen.targets);
        EXPECT_LE(bound.targets, bound.tokens);
        if (!packing) {
            EXPECT_EQ(bound.targets, seen.targets);
        }
    }
}

TEST(Loader, LargestOfFewerRowsThanABatch) {
    const auto samples = make_samples({3, 5});
    const Loader loader(table_of(samples), {8, 4, 32, false, true, 5});
    EXPECT_EQ(loader.largest().tokens, 8);
    EXPECT_EQ(loader.largest().samples, 2);
    EXPECT_EQ(loader.steps_per_epoch(), 1);
}

TEST(Loader, RefusesOptionsOutOfRange) {
    const auto samples = make_samples({3, 5});
    EXPECT_ERROR(Loader(table_of(samples), {0, 1, 32, false, true, 5}),
                 "per_device_train_batch_size");
    EXPECT_ERROR(Loader(table_of(samples), {1, -1, 32, false, true, 5}),
                 "gradient_accumulation_steps");
    const std::vector<Sample> none;
    EXPECT_ERROR(Loader(table_of(none), {1, 1, 32, false, true, 5}), "no samples");
}

TEST(Loader, HugeCountsDoNotOverflow) {
    const auto samples = make_samples({3, 5});
    const Loader loader(table_of(samples), {INT64_MAX, INT64_MAX, 32, false, true, 5});
    EXPECT_EQ(loader.steps_per_epoch(), 1);
    ASSERT_EQ(loader.step(3).size(), 1u);
    EXPECT_EQ(loader.step(3)[0].samples(), 2);
}

// Ranks that share a step have together what one process has of it.
TEST(Loader, ShapesAreThoseOfTheBatches) {
    const SampleTable samples = table_of(random_samples(53, 20, 3));
    for (const bool packing : {false, true}) {
        for (const bool grouped : {false, true}) {
            LoaderOptions options;
            options.rows_per_micro_batch = 3;
            options.micro_batches_per_step = 2;
            options.max_length = 32;
            options.packing = packing;
            options.group_by_length = grouped && !packing;
            const Loader loader(samples, options);
            std::int64_t units = 0;
            for (std::int64_t step = 0; step < 2 * loader.steps_per_epoch(); ++step) {
                const std::vector<TokenBatch> batches = loader.step(step);
                const std::vector<Loader::Shape> shapes = loader.shapes(step);
                ASSERT_EQ(shapes.size(), batches.size());
                for (std::size_t i = 0; i < shapes.size(); ++i) {
                    EXPECT_EQ(shapes[i].tokens, batches[i].tokens());
                    EXPECT_EQ(shapes[i].longest, batches[i].longest());
                    units += shapes[i].units;
                }
            }
            EXPECT_EQ(units, 2 * loader.units());
        }
    }
}

TEST(Loader, RanksShareEachStepWithoutLossOrDouble) {
    const auto samples = random_samples(53, 40, 1);
    for (const bool packing : {false, true}) {
        for (const std::int64_t micro : {1, 3, 4, 8}) {
            LoaderOptions options{3, micro, 64, packing, true, 9};
            const Loader alone(table_of(samples), options);
            for (std::int64_t world = 1; world <= 5; ++world) {
                std::vector<std::unique_ptr<Loader>> ranks;
                options.world_size = world;
                for (options.rank = 0; options.rank < world; ++options.rank)
                    ranks.push_back(std::make_unique<Loader>(table_of(samples), options));
                for (std::int64_t s = 0; s < 2 * alone.steps_per_epoch(); ++s) {
                    std::vector<std::vector<TokenBatch>> parts;
                    std::size_t count = 0;
                    for (const auto& rank : ranks) {
                        EXPECT_EQ(rank->steps_per_epoch(), alone.steps_per_epoch());
                        parts.push_back(rank->step(s));
                        count += parts.back().size();
                    }
                    const auto whole = alone.step(s);
                    ASSERT_EQ(count, whole.size());
                    std::vector<TokenBatch> joined;
                    for (std::size_t m = 0; m < whole.size(); ++m)
                        joined.push_back(parts[m % ranks.size()].at(m / ranks.size()));
                    EXPECT_TRUE(equal(joined, whole)) << packing << micro << world << " " << s;
                    for (std::size_t r = whole.size(); r < ranks.size(); ++r)
                        EXPECT_TRUE(parts[r].empty());
                }
            }
        }
    }
    EXPECT_THROW(Loader(table_of(samples), {1, 1, 64, false, true, 1, false, 2, 2}), Bug);
}

// Checkpoints of earlier versions go on with the same batches: a number over two epochs.
TEST(Loader, OrdersAreThoseOfEarlierVersions) {
    const auto samples = random_samples(97, 40, 6);
    std::vector<std::uint64_t> numbers;
    for (const bool packing : {false, true}) {
        for (const bool grouped : {false, true}) {
            const Loader loader(table_of(samples), {2, 2, 64, packing, true, 11, grouped});
            std::uint64_t number = 0;
            for (const std::int64_t epoch : {0, 1})
                for (const std::int64_t row : rows_of_epoch(loader, epoch))
                    number = number * 1000003 + static_cast<std::uint64_t>(row);
            numbers.push_back(number);
        }
    }
    EXPECT_EQ(numbers, (std::vector<std::uint64_t>{381824292180867372u, 5526744903045905608u,
                                                   17097513541106800824u, 12208278086658782836u}));
}

TEST(EvaluationBatches, KeepTheOrderAndTheLimit) {
    const auto samples = make_samples({4, 4, 3, 12, 2, 8, 1});
    const auto batches = evaluation_batches(table_of(samples), 10);
    std::vector<std::vector<std::int64_t>> rows;
    for (const TokenBatch& batch : batches) {
        expect_whole_samples(batch, samples);
        rows.push_back(batch.sample_ids);
    }
    EXPECT_EQ(rows, (std::vector<std::vector<std::int64_t>>{{5, 7}, {9}, {11}, {13, 15}, {17}}));
}

}  // namespace
}  // namespace garam
