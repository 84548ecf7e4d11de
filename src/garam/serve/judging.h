// Answers of a model to rows whose verdict is known, and what they add up to.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "garam/data/judged_rows.h"
#include "garam/serve/calibration.h"
#include "garam/serve/classification.h"
#include "garam/serve/served_model.h"

namespace garam {

struct JudgingOptions {
    std::int64_t max_new_tokens = 64;
    std::vector<std::int32_t> eos_ids;  // beside those of the set
    // Labels' probabilities too, from the rows' candidates (as score_continuations() has them).
    bool scores = false;
};

struct JudgedAnswer {
    std::string text;
    std::optional<std::int64_t> label;  // its verdict; none: it cannot be read
    // With scores, of the label that is likeliest among the labels.
    std::int64_t likeliest = 0;
    double probability = 0;
};

struct Judgement {
    explicit Judgement(std::vector<std::string> labels) : confusion(std::move(labels)) {}
    Confusion confusion;      // of verdicts; answers without one count as wrong
    Calibration calibration;  // of the likeliest labels; without scores of nothing
};

// Tokens of the KV cache that a set needs.
std::int64_t judging_room(const JudgedSet& set, std::int64_t max_new_tokens);

// The most probable tokens, up to an end or max_new_tokens, for each row; rows that begin alike compute that
// once. `after_row` hears each answer.
Judgement judge(ServedModel& model, const JudgedSet& set, const JudgingOptions& options,
                const std::function<void(std::size_t row, const JudgedAnswer&)>& after_row = {});

}  // namespace garam
