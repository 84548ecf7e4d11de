// Which branches of the instrumented rooms an input took: a table of counters, one for each place that g++'s
// -fsanitize-coverage=trace-pc calls from, folded to a fixed size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace garam::fuzz {

constexpr std::size_t kCoverageEntries = std::size_t{1} << 16;

void clear_coverage();

// All that inputs have shown so far: for each entry the classes of counts (1, 2, 3, 4-7, 8-15, …) seen.
class CoverageMap {
  public:
    // Adds what ran since clear_coverage(); true when some of it is new.
    bool add_new();
    std::size_t entries() const { return entries_; }

  private:
    std::array<std::uint8_t, kCoverageEntries> seen_{};
    std::size_t entries_ = 0;
};

}  // namespace garam::fuzz
