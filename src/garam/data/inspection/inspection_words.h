// What the terminal and the page say in the same words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "garam/data/inspection/inspection.h"

namespace garam {

inline constexpr const char* kPaddingInWords =
    "garam computes no padding. Empty is what a trainer would compute for nothing that pads each "
    "pass to its longest row, and the room that bins leave.";

// 0 where there is no whole.
double ratio(std::int64_t part, std::int64_t all);

// Of the training rows before truncation.
std::int64_t all_tokens(const Inspection& inspection);
std::int64_t all_targets(const Inspection& inspection);

// Of the batching that is set; 0: none is.
std::int64_t steps_per_epoch(const Inspection& inspection);

// "packed into bins of 1,024"
std::string name_in_words(const BatchingCost& cost, const Inspection& inspection);

// What the smallest max_length is that loses nothing, and 1 %.
std::string loss_in_words(const Inspection& inspection);

// Single sentences about tokens, duplicates, and the longest row.
std::vector<std::string> facts_in_words(const Inspection& inspection);

// "train.jsonl:4, as train.jsonl:1: \"text\"", escaped; empty where there is no example.
std::string example_in_words(const Finding& finding);

}  // namespace garam
