// Hostile input for parsers: a valid file, changed at random. Whatever the change, a parser opens
// the file or throws Error; it never crashes, hangs or allocates beyond a bound tied to the file's
// size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace garam::testing {

struct MutationResult {
    int opened = 0;   // attempts that ended without an Error
    int refused = 0;  // attempts that ended with an Error
};

// Writes `mutations` changed copies of `content` to `path`, one after the other (bytes flipped,
// set, overwritten by extreme integers, pieces removed, doubled or cut off), and calls `attempt`
// for each. Records a test failure for any other exception and for a peak of memory allocated by
// `attempt` above allocation_factor * (size + 4096).
MutationResult try_mutations(const std::string& content, const std::filesystem::path& path,
                             int mutations, std::uint64_t seed,
                             const std::function<void()>& attempt,
                             std::size_t allocation_factor = 100);

// Highest sum of live operator new memory while `action` ran, above the level at its start.
std::size_t peak_allocation_of(const std::function<void()>& action);

}  // namespace garam::testing
