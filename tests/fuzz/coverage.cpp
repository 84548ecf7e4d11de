#include "fuzz/coverage.h"

#include <cstring>

namespace garam::fuzz {
namespace {

// Plain memory: threads may lose a count to each other, which only makes coverage a little blurred.
alignas(64) std::uint8_t counters[kCoverageEntries];

std::uint8_t count_class(std::uint8_t count) {
    if (count <= 3) return static_cast<std::uint8_t>(1 << (count - 1));
    if (count <= 7) return 1 << 3;
    if (count <= 15) return 1 << 4;
    if (count <= 31) return 1 << 5;
    return count <= 127 ? 1 << 6 : 1 << 7;
}

}  // namespace

void clear_coverage() {
    std::memset(counters, 0, sizeof counters);
}

bool CoverageMap::add_new() {
    bool any = false;
    for (std::size_t word = 0; word < kCoverageEntries; word += 8) {
        std::uint64_t eight = 0;
        std::memcpy(&eight, counters + word, sizeof eight);
        if (eight == 0) continue;
        for (std::size_t i = word; i < word + 8; ++i) {
            if (counters[i] == 0) continue;
            const std::uint8_t seen_class = count_class(counters[i]);
            if ((seen_[i] & seen_class) != 0) continue;
            entries_ += seen_[i] == 0;
            seen_[i] = static_cast<std::uint8_t>(seen_[i] | seen_class);
            any = true;
        }
    }
    return any;
}

}  // namespace garam::fuzz

extern "C" void __sanitizer_cov_trace_pc() {
    const auto place = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
    std::uint8_t& count = garam::fuzz::counters[(place * 0x9e3779b97f4a7c15ull) >> 48];
    if (count != 0xff) ++count;
}
