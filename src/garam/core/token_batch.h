// What the data pipeline hands to a model: one micro-batch of samples laid end to end, no padding.
//
// Sample s covers tokens [cu_seqlens[s], cu_seqlens[s + 1]). `targets[t]` is the id that the logits
// of token t are scored against, that is labels[t + 1] of the same sample, or kIgnore: the shift is
// already done, and the last token of a sample never has a target. `positions` restart at 0 in each
// sample. `sample_ids` number the samples of the data set (the row's index), which keys dropout.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace garam {

constexpr std::int32_t kIgnore = -100;

struct TokenBatch {
    std::vector<std::int32_t> ids;         // [tokens]
    std::vector<std::int32_t> targets;     // [tokens]
    std::vector<std::int32_t> positions;   // [tokens]
    std::vector<std::int32_t> cu_seqlens;  // [samples + 1], first 0, last tokens
    std::vector<std::int64_t> sample_ids;  // [samples]

    std::int64_t tokens() const { return static_cast<std::int64_t>(ids.size()); }
    std::int64_t samples() const { return static_cast<std::int64_t>(sample_ids.size()); }
    std::int64_t num_targets() const {
        std::int64_t count = 0;
        for (const std::int32_t target : targets)
            count += target != kIgnore;
        return count;
    }
    std::int64_t longest() const {
        std::int64_t longest = 0;
        for (std::size_t s = 0; s + 1 < cu_seqlens.size(); ++s)
            longest = std::max<std::int64_t>(longest, cu_seqlens[s + 1] - cu_seqlens[s]);
        return longest;
    }

    // Appends one sample. `labels` are in Hugging Face's convention (not shifted, kIgnore masks) and
    // as long as `ids`.
    void append(const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& labels,
                std::int64_t sample_id);
};

}  // namespace garam
