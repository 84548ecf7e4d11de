#include "garam/data/inspection/inspection_lengths.h"

#include <algorithm>
#include <numeric>

namespace garam {
namespace {

// The smallest of 1, 2, 5, 10, 20, 50, … that is not below `wanted`.
std::int64_t round_width(std::int64_t wanted) {
    std::int64_t width = 1;
    for (std::size_t i = 0; width < wanted; ++i)
        width = i % 3 == 1 ? width / 2 * 5 : width * 2;
    return width;
}

std::int64_t nearest_rank(const std::vector<std::int64_t>& sorted, int percent) {
    const auto count = static_cast<std::int64_t>(sorted.size());
    const std::int64_t rank = std::max<std::int64_t>(1, (count * percent + 99) / 100);
    return sorted[static_cast<std::size_t>(rank - 1)];
}

}  // namespace

LengthQuantiles quantiles(const std::vector<std::int64_t>& sorted) {
    LengthQuantiles quantiles;
    const std::int64_t sum = std::accumulate(sorted.begin(), sorted.end(), std::int64_t{0});
    quantiles.mean = static_cast<double>(sum) / static_cast<double>(sorted.size());
    for (std::size_t i = 0; i < quantiles.at.size(); ++i)
        quantiles.at[i] = nearest_rank(sorted, LengthQuantiles::kPercent[i]);
    return quantiles;
}

std::vector<LengthBin> length_histogram(const std::vector<std::int64_t>& whole,
                                        const std::vector<std::int64_t>& kept) {
    constexpr std::int64_t kBins = 16;
    const std::int64_t longest = whole.back();
    // A few very long samples must not press all others into one bin.
    const std::int64_t end = std::min(longest, nearest_rank(whole, 99) * 3 / 2);
    const std::int64_t width = round_width(end / kBins + 1);
    const std::int64_t first = whole.front() / width;
    const std::int64_t last = end / width;
    std::vector<LengthBin> bins;
    for (std::int64_t i = first; i <= last; ++i)
        bins.push_back({i * width, (i + 1) * width, 0, 0});
    if (longest >= bins.back().to) bins.push_back({bins.back().to, longest + 1, 0, 0});
    const auto bin_of = [&](std::int64_t length) -> LengthBin& {
        const std::int64_t at = std::clamp<std::int64_t>(
            length / width - first, 0, static_cast<std::int64_t>(bins.size()) - 1);
        return bins[static_cast<std::size_t>(at)];
    };
    for (const std::int64_t length : whole)
        ++bin_of(length).whole;
    // Truncation may make samples shorter than any was.
    if (!kept.empty() && kept.front() < bins.front().from)
        bins.insert(bins.begin(), {0, bins.front().from, 0, 0});
    for (const std::int64_t length : kept)
        ++std::find_if(bins.begin(), bins.end(), [&](const LengthBin& bin) {
              return length < bin.to;
          })->kept;
    return bins;
}

std::vector<std::int64_t> interesting_lengths(const LengthQuantiles& whole,
                                              std::int64_t set_length) {
    constexpr std::int64_t kShortest = 128;
    constexpr std::int64_t kLongest = 65536;
    std::vector<std::int64_t> lengths = {set_length};
    const std::int64_t longest = whole.at.back();
    for (std::int64_t length = kShortest; length <= kLongest; length *= 2) {
        lengths.push_back(length);
        if (length >= longest) break;
    }
    for (std::size_t i = 0; i < whole.at.size(); ++i)
        if (LengthQuantiles::kPercent[i] >= 50)
            lengths.push_back(std::max<std::int64_t>(2, whole.at[i]));
    std::sort(lengths.begin(), lengths.end());
    lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
    return lengths;
}

std::int64_t length_that_loses(const std::vector<CutLength>& samples, double share) {
    std::int64_t all = 0;
    std::int64_t high = 2;
    for (const CutLength& sample : samples) {
        all += sample.tokens;
        high = std::max(high, sample.tokens);
    }
    const auto lost = [&](std::int64_t length) {
        std::int64_t tokens = 0;
        for (const CutLength& sample : samples)
            if (sample.tokens > length)
                tokens += sample.beyond >= length ? sample.tokens : sample.tokens - length;
        return tokens;
    };
    std::int64_t low = 2;
    while (low < high) {
        const std::int64_t middle = low + (high - low) / 2;
        if (static_cast<double>(lost(middle)) <= share * static_cast<double>(all))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

BatchingCosts batching_costs(const LoaderMaker& make_loader, const LoaderOptions& options) {
    BatchingCosts result;
    for (const char* name : {"plain", "grouped", "packed"}) {
        BatchingCost cost;
        cost.name = name;
        LoaderOptions way = options;
        way.packing = cost.name == "packed";
        way.group_by_length = cost.name == "grouped";
        way.shuffle = options.shuffle || way.group_by_length;
        cost.is_set =
            way.packing == options.packing && way.group_by_length == options.group_by_length;
        const std::unique_ptr<Loader> loader = make_loader(way);
        cost.units = loader->units();
        cost.steps = loader->steps_per_epoch();
        for (std::int64_t step = 0; step < cost.steps; ++step) {
            for (const Loader::Shape& shape : loader->shapes(step)) {
                cost.tokens += shape.tokens;
                cost.room += shape.units * (way.packing ? way.max_length : shape.longest);
                if (cost.is_set && result.longest_step == 0 &&
                    shape.longest == loader->largest().longest)
                    result.longest_step = step + 1;
            }
        }
        result.costs.push_back(std::move(cost));
    }
    return result;
}

}  // namespace garam
