#include "garam/data/packing.h"

#include <algorithm>
#include <functional>
#include <map>

#include "garam/core/error.h"

namespace garam {

PackedLayout::PackedLayout(const std::vector<std::int64_t>& lengths, std::int64_t capacity)
    : lengths_(lengths) {
    std::vector<std::int64_t> places = lengths;
    std::sort(places.begin(), places.end(), std::greater<>());
    GARAM_CHECK(places.empty() || (places.back() > 0 && places.front() <= capacity),
                "a sample does not fit a bin");
    place_bins_.reserve(places.size());
    // Open bins by the room that is left in them; the last one made first.
    std::map<std::int64_t, std::vector<std::int64_t>> by_room;
    for (const std::int64_t length : places) {
        std::int64_t bin = bins_;
        std::int64_t room = capacity;
        if (const auto best = by_room.lower_bound(length); best != by_room.end()) {
            room = best->first;
            bin = best->second.back();
            best->second.pop_back();
            if (best->second.empty()) by_room.erase(best);
        } else {
            ++bins_;
        }
        place_bins_.push_back(bin);
        if (room > length) by_room[room - length].push_back(bin);
    }
}

std::vector<std::vector<std::int64_t>> PackedLayout::assign(
    const std::vector<std::int64_t>& order) const {
    GARAM_CHECK(order.size() == lengths_.size(), "an order of other samples");
    // Longest first, samples of equal length in the given order: the k-th takes the k-th place.
    std::vector<std::int64_t> positions(order.size());
    for (std::size_t i = 0; i < positions.size(); ++i)
        positions[i] = static_cast<std::int64_t>(i);
    const auto length_at = [&](std::int64_t position) {
        return lengths_[static_cast<std::size_t>(order[static_cast<std::size_t>(position)])];
    };
    std::stable_sort(positions.begin(), positions.end(),
                     [&](std::int64_t a, std::int64_t b) { return length_at(a) > length_at(b); });
    std::vector<std::int64_t> bin_at(order.size());
    for (std::size_t place = 0; place < positions.size(); ++place)
        bin_at[static_cast<std::size_t>(positions[place])] = place_bins_[place];
    std::vector<std::vector<std::int64_t>> bins_of(static_cast<std::size_t>(bins_));
    for (std::size_t i = 0; i < order.size(); ++i)
        bins_of[static_cast<std::size_t>(bin_at[i])].push_back(order[i]);
    return bins_of;
}

}  // namespace garam
