// What a data set looks like to the model that is trained on it, counted before anything is trained.
//
// One pass over the tables of samples, on all processors. Beside the tables themselves, which are mapped, it
// holds fewer than 100 bytes a sample.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "garam/data/loader.h"
#include "garam/data/rows/row_encoder.h"
#include "garam/data/samples/sample_table.h"
#include "garam/data/samples/sample_view.h"
#include "garam/text/tokenizer.h"

namespace garam {

// A row of a source.
struct RowPlace {
    std::size_t source = 0;  // index of Inspection::sources
    std::int64_t row = 0;    // in its source, from 0
    std::string where;       // as messages name it: "train.jsonl:17"; see Inspection::places()
};

// Rows that have something in common.
struct Finding {
    std::int64_t count = 0;
    std::vector<RowPlace> examples;  // the first one, with the row that it goes with, if any
    std::string text;                // what they are about, shortened; may be empty
};

// A source as it was read, or those of its rows that are for training or validation. `whole` are its samples
// before truncation; where that took nothing from any row, the same table as `samples`, which are trained on.
struct InspectedSource {
    std::string name;
    bool validation = false;
    std::optional<std::vector<std::int64_t>> rows;  // their numbers, rising; unset: all
    double weight = 1;                              // passes in an epoch
    SampleTable samples;
    SampleTable whole;
    ReadReport report;  // of `samples`
};

struct InspectionOptions {
    LoaderOptions loader;  // max_length and the batch too
    Truncation truncation = Truncation::keep_start;
    double epochs = 3;
    std::int64_t max_steps = -1;        // -1: epochs decide
    std::int64_t vocab_size = 0;        // rows of the model's embedding; 0: not known
    std::int64_t model_positions = 0;   // that the model was made for; 0: not known
    bool template_writes_date = false;  // of the day on which the rows are read
    std::vector<std::string> cache;     // what the cache had, one line a source
    std::int64_t shown_samples = 3;
};

// The distribution of lengths.
struct LengthQuantiles {
    static constexpr std::array<int, 9> kPercent = {0, 5, 25, 50, 75, 90, 95, 99, 100};
    double mean = 0;
    // By nearest rank: the smallest length that so many percent of the samples do not exceed.
    std::array<std::int64_t, 9> at{};
};

struct LengthBin {
    std::int64_t from = 0;
    std::int64_t to = 0;     // the first length behind it
    std::int64_t whole = 0;  // samples before truncation
    std::int64_t kept = 0;   // after
};

// What a max_length would cost.
struct LengthLimit {
    std::int64_t max_length = 0;
    bool is_set = false;              // by the configuration
    std::int64_t rows_truncated = 0;  // with those that are dropped
    std::int64_t rows_dropped = 0;    // no target is left
    std::int64_t tokens_lost = 0;     // of dropped rows: all
    std::int64_t targets_lost = 0;

    void add(const LengthLimit& other) {
        rows_truncated += other.rows_truncated;
        rows_dropped += other.rows_dropped;
        tokens_lost += other.tokens_lost;
        targets_lost += other.targets_lost;
    }
};

// One way to make batches of the configuration's size.
struct BatchingCost {
    std::string name;  // "plain", "grouped", "packed"
    bool is_set = false;
    std::int64_t units = 0;  // rows or bins
    std::int64_t steps = 0;  // an epoch
    // Plain and grouped: the tokens that a trainer computes which pads each micro-batch to its longest row.
    // Packed: the tokens that the bins would hold if they were full. garam computes no padding.
    std::int64_t room = 0;
    std::int64_t tokens = 0;
    double waste() const {
        return room == 0 ? 0 : 1 - static_cast<double>(tokens) / static_cast<double>(room);
    }
};

struct SourceSummary {
    std::string name;
    bool validation = false;
    double weight = 1;
    ReadReport report;
    double epoch_share = 0;        // of the tokens of an epoch
    std::int64_t tokens_lost = 0;  // to truncation, dropped rows included
    std::int64_t targets_lost = 0;
};

struct AnswerCount {
    std::string text;
    std::int64_t count = 0;
};

struct ShownSample {
    RowPlace place;
    std::int64_t tokens = 0;
    std::int64_t targets = 0;
    std::int64_t full_tokens = 0;
    std::vector<SamplePiece> pieces;
};

// What a user should think about before training.
struct InspectionWarning {
    // duplicates, leakage, conflicting_answers, skipped, dropped, truncated, empty_answers, no_end,
    // double_bos, merged_start, outside_vocabulary, unknown_tokens, byte_tokens, imbalance, beyond_positions,
    // long_sample, template_date, few_steps, many_epochs
    std::string kind;
    std::string message;  // what is the case, with its figures
    std::string advice;   // the key to change, and how
    Finding finding;
};

struct Inspection {
    InspectionOptions options;
    std::vector<SourceSummary> sources;  // in the order given

    // Of the training rows:
    LengthQuantiles whole;  // before truncation
    LengthQuantiles kept;   // after
    std::vector<LengthBin> histogram;
    std::vector<LengthLimit> limits;      // from short to long
    std::int64_t lossless_length = 0;     // the smallest max_length that loses nothing
    std::int64_t one_percent_length = 0;  // ... at most 1 % of the tokens
    std::vector<BatchingCost> batchings;
    std::int64_t steps = 0;   // of the whole run
    std::int64_t epochs = 0;  // that it begins
    RowPlace longest;
    std::int64_t longest_step = 0;     // of the first epoch, from 1, in which the longest row comes
    std::vector<AnswerCount> answers;  // the most frequent first; empty where they are no classes
    double characters_per_token = 0;   // of up to 2,000 rows, evenly spread
    Finding truncated;                 // training rows that are longer than max_length
    Finding end_cut;     // training rows in which truncation takes the end of the answer
    Finding duplicates;  // training rows that equal an earlier one
    Finding conflicts;   // training rows with one answer whose prompt has another one elsewhere

    // Of the validation rows:
    Finding leakage;         // that equal a training row
    Finding shared_prompts;  // whose prompt a training row has; with those of leakage
    Finding repeats;         // that equal an earlier one

    // Of all rows:
    Finding empty_answers;  // an answer of white space only
    Finding no_end;         // no end of turn or text is a target behind the last answer
    Finding double_bos;
    Finding outside_vocabulary;
    Finding unknown;  // rows with tokens that stand for what the vocabulary lacks
    std::int64_t unknown_tokens = 0;
    std::int64_t byte_tokens = 0;  // of a SentencePiece vocabulary: <0x0A>

    std::vector<ShownSample> samples;
    std::vector<InspectionWarning> warnings;
    std::vector<std::string> notes;  // harmless, but asked about

    // Sums over the sources.
    ReadReport training() const;
    ReadReport validation() const;

    // Every place that is shown; `where` is "<source>, row N" (from 0) until somebody knows better.
    std::vector<RowPlace*> places();
};

// Batches of the training samples as a run would make them.
using LoaderMaker = std::function<std::unique_ptr<Loader>(const LoaderOptions& options)>;

// At least one sample is there to train on.
Inspection inspect(const std::vector<InspectedSource>& sources, const Tokenizer& tokenizer,
                   const InspectionOptions& options, const LoaderMaker& make_loader);

}  // namespace garam
