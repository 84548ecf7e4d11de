// The part of inspection.h that needs nothing but lengths.
#pragma once

#include <cstdint>
#include <vector>

#include "garam/data/inspection/inspection.h"

namespace garam {

// `sorted` rises and is not empty.
LengthQuantiles quantiles(const std::vector<std::int64_t>& sorted);

// Bins of one width, a round number; what lies far behind nearly all is in the last one.
std::vector<LengthBin> length_histogram(const std::vector<std::int64_t>& whole,
                                        const std::vector<std::int64_t>& kept);

// Values of max_length that are worth knowing about: powers of two from 128 to the first one that takes
// nothing (at most 65536), the one that is set, and the upper quantiles. Rising.
std::vector<std::int64_t> interesting_lengths(const LengthQuantiles& whole,
                                              std::int64_t set_length);

// A sample, and the max_length up to which no target of it is left: it is then lost as a whole.
struct CutLength {
    std::int64_t tokens = 0;
    std::int64_t beyond = 0;
};
// The smallest max_length, from 2, that loses at most `share` of all tokens.
std::int64_t length_that_loses(const std::vector<CutLength>& samples, double share);

// Each way to make batches, and the step of the first epoch, from 1, in which the longest sample comes.
struct BatchingCosts {
    std::vector<BatchingCost> costs;
    std::int64_t longest_step = 0;
};
BatchingCosts batching_costs(const LoaderMaker& make_loader, const LoaderOptions& options);

}  // namespace garam
