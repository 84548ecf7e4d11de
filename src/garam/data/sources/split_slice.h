// Splits and slices as `datasets` writes them: "train", "train[:90%]", "[100:200]", "train[-500:]+test".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace garam {

struct SplitSlice {
    std::string split;  // empty: the only one
    // Negative: from the end. Unset: from the first, to the last.
    std::optional<std::int64_t> from;
    std::optional<std::int64_t> to;
    bool is_percent = false;
    // Percents are steps of a hundredth of the rows, rounded down, so that all have the same size.
    bool drops_remainder = false;

    bool is_whole() const { return !from && !to; }
    // Whether the rows have to be counted before the first of the slice is known.
    bool needs_count() const { return is_percent || from.value_or(0) < 0 || to.value_or(0) < 0; }
};

struct RowRange {
    std::int64_t begin = 0;
    std::int64_t end = 0;
};

// The parts of a sum. Throws Error naming the text.
std::vector<SplitSlice> parse_split(const std::string& text);

// Of `rows` rows, rounded as `datasets` rounds. `end` is never before `begin`. Throws Error for steps of a
// hundredth of fewer than a hundred rows.
RowRange resolve(const SplitSlice& slice, std::int64_t rows);

}  // namespace garam
