// A number that tells one data set from another: ids, labels, row numbers and the order of the
// samples decide it, on every machine alike. A checkpoint keeps it so that a run is not resumed on
// other data. It finds accidents, not forgery.
#pragma once

#include <cstdint>

#include "garam/data/samples/sample.h"

namespace garam {

class Fingerprint {
  public:
    void add(const Sample& sample);
    // FNV-1a (Fowler, Noll, Vo) over 64-bit words.
    void add(std::uint64_t word) { state_ = (state_ ^ word) * 0x100000001b3u; }
    std::uint64_t value() const;

  private:
    std::uint64_t state_ = 0xcbf29ce484222325u;
};

}  // namespace garam
