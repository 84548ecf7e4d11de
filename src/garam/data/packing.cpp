#include "garam/data/packing.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "garam/core/error.h"

namespace garam {

PackedLayout::PackedLayout(std::vector<std::uint32_t> lengths, std::int64_t capacity)
    : lengths_(std::move(lengths)) {
    constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
    GARAM_CHECK(lengths_.size() < kNone, "too many samples to pack");
    const auto [shortest, longest] = std::minmax_element(lengths_.begin(), lengths_.end());
    if (lengths_.empty()) return;
    GARAM_CHECK(*shortest > 0 && *longest <= capacity, "a sample does not fit a bin");
    std::vector<std::uint32_t> counts(std::size_t{*longest} + 1);
    for (const std::uint32_t length : lengths_) {
        ++counts[length];
        tokens_ += length;
    }
    firsts_.resize(counts.size());
    place_bins_.reserve(lengths_.size());
    // Open bins by the room that is left in them: the last one made, and behind each the one before it.
    std::map<std::int64_t, std::uint32_t> by_room;
    std::vector<std::uint32_t> before;
    for (std::uint32_t length = *longest; length > 0; --length) {
        firsts_[length] = static_cast<std::uint32_t>(place_bins_.size());
        for (std::uint32_t i = 0; i < counts[length]; ++i) {
            std::uint32_t bin = static_cast<std::uint32_t>(before.size());
            std::int64_t room = capacity;
            if (const auto best = by_room.lower_bound(length); best != by_room.end()) {
                room = best->first;
                bin = best->second;
                if (before[bin] == kNone)
                    by_room.erase(best);
                else
                    best->second = before[bin];
            } else {
                before.push_back(kNone);
            }
            place_bins_.push_back(bin);
            if (room == length) continue;
            const auto [place, is_new] = by_room.try_emplace(room - length, bin);
            before[bin] = is_new ? kNone : std::exchange(place->second, bin);
        }
    }
    bins_ = static_cast<std::int64_t>(before.size());
}

Bins PackedLayout::assign(const std::vector<std::uint32_t>& order) const {
    GARAM_CHECK(order.size() == lengths_.size(), "an order of other samples");
    // The k-th of the samples of a length takes the k-th place of that length.
    std::vector<std::uint32_t> next = firsts_;
    std::vector<std::uint32_t> bin_at(order.size());
    Bins bins;
    bins.begins.assign(static_cast<std::size_t>(bins_) + 1, 0);
    for (std::size_t i = 0; i < order.size(); ++i) {
        bin_at[i] = place_bins_[next[lengths_[order[i]]]++];
        ++bins.begins[bin_at[i] + 1];
    }
    for (std::size_t b = 1; b < bins.begins.size(); ++b)
        bins.begins[b] += bins.begins[b - 1];
    std::vector<std::uint32_t> filled(bins.begins.begin(), bins.begins.end() - 1);
    bins.members.resize(order.size());
    for (std::size_t i = 0; i < order.size(); ++i)
        bins.members[filled[bin_at[i]]++] = order[i];
    return bins;
}

}  // namespace garam
