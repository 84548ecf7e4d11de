// Packing: samples laid into bins of a fixed number of tokens so that little room is left, by best
// fit decreasing (longest sample first, each into the fullest bin that still takes it).
//
// Only the lengths decide how the bins look, so the layout is the same in every epoch; which of the
// samples of a length takes which of its places is what an epoch's order changes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace garam {

// The samples of each bin: bin b has members[begins[b]] .. members[begins[b + 1] - 1].
struct Bins {
    std::vector<std::uint32_t> members;
    std::vector<std::uint32_t> begins;

    std::int64_t size() const { return static_cast<std::int64_t>(begins.size()) - 1; }
    std::span<const std::uint32_t> operator[](std::int64_t bin) const {
        const auto b = static_cast<std::size_t>(bin);
        return {members.data() + begins[b], begins[b + 1] - begins[b]};
    }
};

class PackedLayout {
  public:
    // `lengths` within 1..capacity, fewer than 2^32 - 1 of them; keeps them. O(n log(distinct rooms)).
    PackedLayout(std::vector<std::uint32_t> lengths, std::int64_t capacity);

    std::int64_t bins() const { return bins_; }
    std::int64_t tokens() const { return tokens_; }

    // The samples of each bin when `order` (a permutation of all samples) is packed; within a bin
    // in that order. Equals packing from scratch in that order. O(n).
    Bins assign(const std::vector<std::uint32_t>& order) const;

  private:
    std::vector<std::uint32_t> lengths_;     // of each sample
    std::vector<std::uint32_t> place_bins_;  // bin of each place, places of longer samples first
    std::vector<std::uint32_t> firsts_;      // first place of each length
    std::int64_t bins_ = 0;
    std::int64_t tokens_ = 0;
};

}  // namespace garam
