// Labelled rows for evaluation: a question and, for each label of the set, the answer's tokens, so
// that the likeliest answer is the predicted label.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "garam/data/data_config.h"
#include "garam/data/data_sources.h"
#include "garam/data/rows/row_encoder.h"
#include "garam/data/samples/read_samples.h"
#include "garam/data/samples/sample.h"
#include "garam/text/tokenizer.h"

namespace garam {

// For every label k, prompt_ids followed by candidates[k] are exactly the ids that training sees
// for that answer, up to and including the last target (the token that ends the turn). Usually
// prompt_ids is the whole question with its generation prompt; where a tokenizer merges characters
// across the border it ends a little before, for all candidates alike.
struct LabelledRow {
    std::vector<std::int32_t> prompt_ids;               // at least one token
    std::vector<std::vector<std::int32_t>> candidates;  // one a label; none is empty
    std::int64_t label = 0;                             // index of the right one
    std::int64_t row = 0;                               // number in its source, from 0
    std::string text;                                   // the row's text as it stands there
};

struct LabelledSet {
    // In the order of data.label_names, or of the names that the data declares, else sorted.
    std::vector<std::string> labels;
    std::vector<LabelledRow> rows;
    // kept, tokens, longest: of prompts with their longest candidate. target_tokens: of the right
    // answers. Rows beyond max_length are dropped, not truncated.
    ReadReport report;
};

// More labels than this are no classes.
constexpr std::size_t kMaxLabels = 256;

// Numbers of rows, one list a source, each ascending.
using RowNumbers = std::vector<std::vector<std::int64_t>>;
// The rows that data.validation_fraction holds out of training with this seed.
RowNumbers held_out_rows(const SampleTables& tables, double fraction, std::uint64_t seed);

// `more_labels` are candidates even where no row has them (the labels of the training rows). Throws
// Error as read_samples() does, when a row has no label, and when there are fewer than two labels
// or more than kMaxLabels. `only`: the rows that count; empty: all.
LabelledSet read_labelled_rows(const DataPlaces& places, const DataConfig& config,
                               const EncodingSettings& settings, const Tokenizer& tokenizer,
                               const std::vector<std::string>& more_labels = {},
                               const RowNumbers& only = {});

// The labels of the rows of sources that were not read yet, in the order of LabelledSet::labels.
std::vector<std::string> read_labels(std::vector<OpenSource> sources, const DataConfig& config,
                                     const Tokenizer& tokenizer);

}  // namespace garam
