// Packing: samples laid into bins of a fixed number of tokens so that little room is left, by best
// fit decreasing (longest sample first, each into the fullest bin that still takes it).
//
// Only the lengths decide how the bins look, so the layout is the same in every epoch; which of the
// samples of a length takes which of its places is what an epoch's order changes.
#pragma once

#include <cstdint>
#include <vector>

namespace garam {

class PackedLayout {
  public:
    // `lengths` within 1..capacity. O(n log n).
    PackedLayout(const std::vector<std::int64_t>& lengths, std::int64_t capacity);

    std::int64_t bins() const { return bins_; }

    // The samples of each bin when `order` (a permutation of all samples) is packed; within a bin
    // in that order. Equals packing from scratch in that order.
    std::vector<std::vector<std::int64_t>> assign(const std::vector<std::int64_t>& order) const;

  private:
    std::vector<std::int64_t> lengths_;     // of each sample
    std::vector<std::int64_t> place_bins_;  // bin of each place, places of longer samples first
    std::int64_t bins_ = 0;
};

}  // namespace garam
