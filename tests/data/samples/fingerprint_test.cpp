#include "garam/data/samples/fingerprint.h"

#include <gtest/gtest.h>

#include <set>

#include "garam/data/samples/sample_table.h"

namespace garam {
namespace {

std::uint64_t fingerprint(const std::vector<Sample>& samples) {
    return table_of(samples).fingerprint();
}

TEST(Fingerprint, IsThatOfTheContent) {
    const std::vector<Sample> base = {{{1, 2, 3}, {-100, 2, 3}, 0}, {{4, 5}, {4, 5}, 1}};
    EXPECT_EQ(fingerprint(base), fingerprint(std::vector<Sample>(base)));

    std::set<std::uint64_t> seen = {fingerprint(base), fingerprint({})};
    const auto expect_other = [&](std::vector<Sample> changed, const char* what) {
        EXPECT_TRUE(seen.insert(fingerprint(changed)).second) << what;
    };
    auto changed = base;
    changed[1].ids[1] = 6;
    expect_other(changed, "an id");
    changed = base;
    changed[0].labels[0] = 1;
    expect_other(changed, "a label");
    changed = base;
    changed[0].row = 7;
    expect_other(changed, "a row number");
    expect_other({base[1], base[0]}, "the order");
    expect_other({base[0]}, "a sample less");
    // The same numbers, cut between samples elsewhere.
    expect_other({{{1, 2}, {-100, 2}, 0}, {{3, 4, 5}, {3, 4, 5}, 1}}, "the cut");
}

TEST(Fingerprint, IsTheSameOnEveryMachine) {
    // Checkpoints carry it: a change of the hash must be deliberate. The value is from a redo in
    // Python.
    EXPECT_EQ(fingerprint({{{1, 2, 3}, {-100, 2, 3}, 0}}), 5240827155438910022u);
}

}  // namespace
}  // namespace garam
