#include "garam/data/samples/sample_selection.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "garam/core/error.h"
#include "garam/core/philox.h"
#include "garam/data/samples/fingerprint.h"

namespace garam {
namespace {

using Indices = SampleSelection::Indices;

// Keep these draws apart from everything else that is drawn with the run's seed.
constexpr std::uint64_t kShareKey = 0x7368617265000000;    // "share"
constexpr std::uint64_t kHeldOutKey = 0x68656c646f757400;  // "heldout"

constexpr double kMostPasses = 10000;

struct Drawn {
    std::vector<std::uint32_t> taken;
    std::vector<std::uint32_t> left;
};

// `count` of the `of` places, each set of them as likely (selection sampling; Knuth, The Art of Computer
// Programming 3.4.2, algorithm S): in order, without memory for the others.
Drawn draw(std::int64_t count, std::int64_t of, Random random, bool keep_left) {
    Drawn drawn;
    drawn.taken.reserve(static_cast<std::size_t>(count));
    if (keep_left) drawn.left.reserve(static_cast<std::size_t>(of - count));
    for (std::int64_t i = 0; i < of; ++i) {
        const bool take =
            static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(of - i))) < count;
        count -= take;
        if (take)
            drawn.taken.push_back(static_cast<std::uint32_t>(i));
        else if (keep_left)
            drawn.left.push_back(static_cast<std::uint32_t>(i));
    }
    return drawn;
}

std::int64_t share_of(double fraction, std::int64_t count) {
    return std::min(count,
                    static_cast<std::int64_t>(std::llround(fraction * static_cast<double>(count))));
}

// All passes over those samples of a table that may be trained on.
void add_passes(SampleSelection& selection, const WeightedTable& weighted, std::int64_t source,
                const Indices& allowed, std::uint64_t seed) {
    const double weight = weighted.weight;
    if (!(weight >= 0) || weight > kMostPasses)
        throw Error("data.weights: " + std::to_string(weight) + " is not between 0 and 10000");
    const double whole = std::floor(weight);
    for (double pass = 0; pass < whole; ++pass)
        selection.add(weighted.table, source, allowed);
    const std::int64_t count =
        allowed ? static_cast<std::int64_t>(allowed->size()) : weighted.table.size();
    const std::int64_t share = share_of(weight - whole, count);
    if (share == 0) return;
    std::vector<std::uint32_t> taken =
        draw(share, count, Random(seed ^ kShareKey, static_cast<std::uint64_t>(source)), false)
            .taken;
    if (allowed)
        for (std::uint32_t& index : taken)
            index = (*allowed)[index];
    selection.add(weighted.table, source,
                  std::make_shared<const std::vector<std::uint32_t>>(std::move(taken)));
}

}  // namespace

SampleSelection::SampleSelection(SampleTable table) {
    add(table, 0);
}

void SampleSelection::add(const SampleTable& table, std::int64_t source, Indices indices) {
    if (table.size() > std::int64_t{std::numeric_limits<std::uint32_t>::max()})
        throw Error("a source of data has " + std::to_string(table.size()) +
                    " samples; 4294967295 are the most: split it into several");
    const std::int64_t count = indices ? static_cast<std::int64_t>(indices->size()) : table.size();
    if (count == 0) return;
    parts_.push_back({table, std::move(indices), source, size_, ids_});
    size_ += count;
    ids_ += table.row(table.size() - 1) + 1;  // rows ascend
}

SampleSelection::Place SampleSelection::place(std::int64_t i) const {
    GARAM_CHECK(i >= 0 && i < size_, "a sample of the selection");
    const Part* part = parts_.data();
    if (parts_.size() > 1)
        part = &*(std::upper_bound(parts_.begin(), parts_.end(), i,
                                   [](std::int64_t at, const Part& p) { return at < p.begin; }) -
                  1);
    const std::int64_t at = i - part->begin;
    return {part, part->indices ? (*part->indices)[static_cast<std::size_t>(at)] : at};
}

std::int64_t SampleSelection::tokens(std::int64_t i) const {
    const Place at = place(i);
    return at.part->table.tokens(at.sample);
}

std::int64_t SampleSelection::targets(std::int64_t i) const {
    const Place at = place(i);
    return at.part->table.targets(at.sample);
}

std::int64_t SampleSelection::id(std::int64_t i) const {
    const Place at = place(i);
    return at.part->first_id + at.part->table.row(at.sample);
}

void SampleSelection::append_to(TokenBatch& batch, std::int64_t i) const {
    const Place at = place(i);
    at.part->table.append_to(batch, at.sample, at.part->first_id + at.part->table.row(at.sample));
}

SampleSelection::Origin SampleSelection::origin(std::int64_t id) const {
    GARAM_CHECK(id >= 0 && id < ids_, "an id of the selection");
    const auto part =
        std::upper_bound(parts_.begin(), parts_.end(), id,
                         [](std::int64_t at, const Part& p) { return at < p.first_id; }) -
        1;
    return {part->source, id - part->first_id};
}

std::uint64_t SampleSelection::fingerprint() const {
    if (parts_.empty()) return SampleTable().fingerprint();
    if (parts_.size() == 1 && !parts_[0].indices) return parts_[0].table.fingerprint();
    Fingerprint hash;
    for (const Part& part : parts_) {
        hash.add(part.table.fingerprint());
        hash.add(static_cast<std::uint64_t>(part.source));
        hash.add(part.indices ? part.indices->size() : std::numeric_limits<std::uint64_t>::max());
        if (!part.indices) continue;
        for (const std::uint32_t index : *part.indices)
            hash.add(index);
    }
    return hash.value();
}

SampleSelection select_samples(const std::vector<WeightedTable>& tables, std::uint64_t seed) {
    SampleSelection selection;
    for (std::size_t i = 0; i < tables.size(); ++i)
        add_passes(selection, tables[i], static_cast<std::int64_t>(i), nullptr, seed);
    return selection;
}

SampleSplit hold_out(const std::vector<WeightedTable>& tables, double fraction,
                     std::uint64_t seed) {
    if (!(fraction > 0 && fraction < 1))
        throw Error("data.validation_fraction: " + std::to_string(fraction) +
                    " is not between 0 and 1");
    std::vector<std::int64_t> counts;
    std::int64_t all = 0;
    std::int64_t largest = 0;
    for (const WeightedTable& one : tables) {
        counts.push_back(share_of(fraction, one.table.size()));
        all += counts.back();
        largest = std::max(largest, one.table.size());
    }
    if (largest < 2)
        throw Error("data.validation_fraction: there are too few samples to hold some out");
    for (std::size_t i = 0; i < tables.size(); ++i) {
        const std::int64_t size = tables[i].table.size();
        if (all == 0 && size == largest) all = counts[i] = 1;
        if (size > 1) counts[i] = std::min(counts[i], size - 1);
    }
    SampleSplit split;
    for (std::size_t i = 0; i < tables.size(); ++i) {
        const auto source = static_cast<std::int64_t>(i);
        Indices left;
        if (counts[i] > 0) {
            Drawn drawn = draw(counts[i], tables[i].table.size(),
                               Random(seed ^ kHeldOutKey, static_cast<std::uint64_t>(i)), true);
            split.held_out.add(
                tables[i].table, source,
                std::make_shared<const std::vector<std::uint32_t>>(std::move(drawn.taken)));
            left = std::make_shared<const std::vector<std::uint32_t>>(std::move(drawn.left));
        }
        add_passes(split.training, tables[i], source, left, seed);
    }
    return split;
}

}  // namespace garam
