// What one execution may take: memory by what its files hold, and a time of the processor.
//
// Memory is counted by a hook in the sanitizer's allocator, so libraries' count too; without the address
// sanitizer nothing is counted. An execution beyond its limits ends the process at once with a message, the
// stack at that moment and the exit status kBeyondLimits.
#pragma once

#include <cstddef>

namespace garam::fuzz {

constexpr int kBeyondLimits = 78;

struct Limits {
    std::size_t bytes = 0;
    double cpu_seconds = 0;
};

// Holds the limits while it lives. One at a time.
class LimitedRun {
  public:
    explicit LimitedRun(const Limits& limits);
    ~LimitedRun();
    LimitedRun(const LimitedRun&) = delete;
    LimitedRun& operator=(const LimitedRun&) = delete;

    // Highest sum of live allocations since it began.
    static std::size_t peak_bytes();
};

}  // namespace garam::fuzz
