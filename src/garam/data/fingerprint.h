// A number that tells one data set from another: ids, labels, row numbers and the order of the
// samples decide it, on every machine alike. A checkpoint keeps it so that a run is not resumed on
// other data. It finds accidents, not forgery.
#pragma once

#include <cstdint>
#include <vector>

#include "garam/data/sample.h"

namespace garam {

std::uint64_t fingerprint(const std::vector<Sample>& samples);

}  // namespace garam
