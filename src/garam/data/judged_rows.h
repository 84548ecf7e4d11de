// Rows of validation data whose answers are generated and judged: the verdict that each should get, and
// what the model is asked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "garam/data/rows/labelled_rows.h"
#include "garam/data/rows/verdict.h"
#include "garam/data/samples/sample_selection.h"

namespace garam {

struct JudgedRequest {
    std::int64_t rows = 0;  // at most so many, drawn by the seed; 0: all
    std::uint64_t seed = 0;
    std::string verdict_key;  // of answers that are JSON
    // Rows must say what each label's answer would be (LabelledRow::candidates).
    bool candidates = false;
};

struct JudgedSet {
    std::vector<std::string> labels;
    std::vector<LabelledRow> rows;  // in the order of the data
    VerdictReader reader{"", ""};
    std::vector<std::int32_t> end_ids;  // special tokens that end an answer of the data; ascending
    std::int64_t left_out = 0;  // rows that were drawn, but whose answer was cut off or empty
    std::int64_t longest_prompt = 0;
    std::int64_t longest_candidate = 0;
    std::int64_t longest_answer = 0;  // of the right ones, up to the token that ends it
};

// `wanted` different numbers below `count` (all, where there are no more, or 0 is wanted), ascending: by the
// seed and nothing else.
std::vector<std::int64_t> draw_numbers(std::int64_t count, std::int64_t wanted, std::uint64_t seed);

// `samples`: the validation data as `places` and `settings` give it. Rows of text and label (with
// data.instruction) are asked as training asks them, and any label of training or validation rows can be
// answered. Of any other rows the last answer that is trained on is the question's, and its verdict the truth.
// Throws Error when rows have no question or no verdict, when there are fewer than two labels or more than
// kMaxLabels, and when candidates are asked for of rows without labels.
JudgedSet judged_rows(const SampleSelection& samples, const DataPlaces& places,
                      const DataConfig& config, const EncodingSettings& settings,
                      const Tokenizer& tokenizer, const JudgedRequest& request);

// Labels of the training rows; none when these are not at hand.
std::vector<std::string> labels_of_training(const DataConfig& config, const Tokenizer& tokenizer);

}  // namespace garam
