#include "garam/data/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>
#include <vector>

#include "garam/core/error.h"
#include "garam/core/json.h"
#include "garam/core/philox.h"
#include "garam/text/tokenizer.h"
#include "testing/test_data.h"
#include "text/tokenizer_data.h"

namespace garam {
namespace {

using Nested = std::vector<std::vector<std::uint32_t>>;

std::vector<std::uint32_t> identity(std::size_t count) {
    std::vector<std::uint32_t> order(count);
    std::iota(order.begin(), order.end(), std::uint32_t{0});
    return order;
}

std::vector<std::uint32_t> random_order(std::size_t count, std::uint64_t seed) {
    std::vector<std::uint32_t> order = identity(count);
    Random random(seed);
    for (std::size_t i = count; i > 1; --i)
        std::swap(order[i - 1], order[random.below(i)]);
    return order;
}

// Best fit decreasing as one would write it down: every bin is looked at for every sample. Of bins
// with equal room the one that got its room last is taken, as in the layout.
Nested best_fit_decreasing(const std::vector<std::uint32_t>& lengths, std::int64_t capacity,
                           std::vector<std::uint32_t> order) {
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
        return lengths[static_cast<std::size_t>(a)] > lengths[static_cast<std::size_t>(b)];
    });
    Nested bins;
    std::vector<std::int64_t> room;
    std::vector<std::size_t> touched;
    for (std::size_t time = 0; time < order.size(); ++time) {
        const std::int64_t length = lengths[static_cast<std::size_t>(order[time])];
        std::size_t best = bins.size();
        for (std::size_t bin = 0; bin < bins.size(); ++bin) {
            if (room[bin] < length) continue;
            if (best == bins.size() || room[bin] < room[best] ||
                (room[bin] == room[best] && touched[bin] > touched[best]))
                best = bin;
        }
        if (best == bins.size()) {
            bins.emplace_back();
            room.push_back(capacity);
            touched.push_back(time);
        }
        bins[best].push_back(order[time]);
        room[best] -= length;
        touched[best] = time;
    }
    return bins;
}

Nested assign(const PackedLayout& layout, const std::vector<std::uint32_t>& order) {
    const Bins bins = layout.assign(order);
    Nested nested;
    for (std::int64_t b = 0; b < bins.size(); ++b)
        nested.emplace_back(bins[b].begin(), bins[b].end());
    return nested;
}

Nested sorted(Nested bins) {
    for (auto& bin : bins)
        std::sort(bin.begin(), bin.end());
    return bins;
}

TEST(PackedLayout, EqualsBestFitDecreasingFromScratchInEveryOrder) {
    Random random(7);
    for (int round = 0; round < 40; ++round) {
        const std::int64_t capacity = 1 + static_cast<std::int64_t>(random.below(60));
        std::vector<std::uint32_t> lengths(random.below(120));
        for (auto& length : lengths)
            length =
                1 + static_cast<std::uint32_t>(random.below(static_cast<std::uint64_t>(capacity)));
        const PackedLayout layout(lengths, capacity);
        for (std::uint64_t seed = 0; seed < 3; ++seed) {
            const auto order = random_order(lengths.size(), seed);
            EXPECT_EQ(sorted(assign(layout, order)),
                      sorted(best_fit_decreasing(lengths, capacity, order)));
        }
    }
}

TEST(PackedLayout, KeepsEverySampleOnceAndNeverOverfills) {
    Random random(3);
    std::vector<std::uint32_t> lengths(2000);
    for (auto& length : lengths)
        length = 1 + static_cast<std::uint32_t>(random.below(512));
    const PackedLayout layout(lengths, 512);
    const auto order = random_order(lengths.size(), 1);
    std::vector<int> seen(lengths.size(), 0);
    const Nested bins = assign(layout, order);
    EXPECT_EQ(static_cast<std::int64_t>(bins.size()), layout.bins());
    for (const auto& bin : bins) {
        std::int64_t tokens = 0;
        for (const std::uint32_t sample : bin) {
            ++seen[static_cast<std::size_t>(sample)];
            tokens += lengths[static_cast<std::size_t>(sample)];
        }
        EXPECT_GT(tokens, 0);
        EXPECT_LE(tokens, 512);
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), 2000);
}

TEST(PackedLayout, SamplesOfABinStandInTheEpochsOrder) {
    const std::vector<std::uint32_t> lengths = {2, 3, 1, 4};
    const PackedLayout layout(lengths, 10);
    EXPECT_EQ(assign(layout, {2, 0, 3, 1}), (Nested{{2, 0, 3, 1}}));
}

TEST(PackedLayout, RefusesSamplesLongerThanABin) {
    EXPECT_THROW(PackedLayout({3, 11}, 10), Bug);
    EXPECT_THROW(PackedLayout({3, 0}, 10), Bug);
}

TEST(PackedLayout, FillsRealLengthsTo98Percent) {
    const auto file = testing::data_dir().parent_path() / "peers" / "lengths.txt";
    if (!std::filesystem::exists(file)) GTEST_SKIP() << "no " << file;
    std::ifstream stream(file);
    std::vector<std::uint32_t> real;
    for (std::uint32_t length = 0; stream >> length;)
        real.push_back(length);
    ASSERT_GT(real.size(), 900u);
    for (const std::int64_t capacity : {512, 1024, 2048}) {
        std::vector<std::uint32_t> lengths = real;
        for (auto& length : lengths)
            length = std::min(length, static_cast<std::uint32_t>(capacity));
        const auto tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
        const PackedLayout layout(lengths, capacity);
        const double efficiency =
            static_cast<double>(tokens) / static_cast<double>(layout.bins() * capacity);
        EXPECT_GE(efficiency, 0.98) << "bins of " << capacity;
        RecordProperty("efficiency_" + std::to_string(capacity), std::to_string(efficiency));
    }
}

// Tokens of instructions with their answers and of text messages, with what a chat template adds to each.
TEST(PackedLayout, FillsInstructAndSpamSetsTo98Percent) {
    const Tokenizer* tokenizer = testing::reference_tokenizer("llama-3.1");
    if (tokenizer == nullptr) GTEST_SKIP() << "no files of a tokenizer";
    GARAM_REQUIRE_DATA("instruct/alpaca_en_demo.json");
    GARAM_REQUIRE_DATA("spam/SMSSpamCollection");
    constexpr std::uint32_t kTemplate = 12;
    const auto length_of = [&](const std::string& text) {
        return static_cast<std::uint32_t>(tokenizer->encode_ids(text, {}).size()) + kTemplate;
    };
    std::map<std::string, std::vector<std::uint32_t>> sets;
    const Json rows = Json::parse_file(testing::data_dir() / "instruct/alpaca_en_demo.json");
    for (const Json& row : rows.array())
        sets["instruct"].push_back(length_of(row.at("instruction").string() +
                                             row.at("input").string() + row.at("output").string()));
    std::ifstream messages(testing::data_dir() / "spam/SMSSpamCollection");
    for (std::string line; std::getline(messages, line);)
        sets["spam"].push_back(length_of(line));
    for (const auto& [name, real] : sets) {
        ASSERT_GT(real.size(), 900u);
        for (const std::int64_t capacity : {512, 1024, 2048}) {
            std::vector<std::uint32_t> lengths = real;
            for (auto& length : lengths)
                length = std::min(length, static_cast<std::uint32_t>(capacity));
            const PackedLayout layout(lengths, capacity);
            const double efficiency = static_cast<double>(layout.tokens()) /
                                      static_cast<double>(layout.bins() * capacity);
            EXPECT_GE(efficiency, 0.98) << name << ", bins of " << capacity;
            RecordProperty(name + "_" + std::to_string(capacity), std::to_string(efficiency));
        }
    }
}

}  // namespace
}  // namespace garam
