// One row of the data set as token ids, and what reading the rows of a file found.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace garam {

// `labels` are in Hugging Face's convention: as long as `ids`, not shifted, kIgnore where a token
// is no target. labels[0] is never scored: nothing comes before it.
struct Sample {
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> labels;
    std::int64_t row = 0;  // number of the row in its source, from 0; blank lines do not count

    std::int64_t tokens() const { return static_cast<std::int64_t>(ids.size()); }
    // Labels that are scored after the shift.
    std::int64_t targets() const;
};

// Why a row gives no sample.
enum class DropReason : std::uint8_t {
    empty,               // the row holds no text
    no_assistant_turn,   // a chat in which the assistant says nothing
    nothing_to_predict,  // no token that comes after another one is a target
    beyond_max_length,   // truncation removed all targets
    count_
};
constexpr std::size_t kDropReasons = static_cast<std::size_t>(DropReason::count_);
const char* explain(DropReason reason);

struct ReadReport {
    struct Finding {
        std::int64_t count = 0;
        std::string first_where;    // "train.jsonl:17", "train.parquet, row 16"
        std::string first_example;  // the first row's beginning, or what was wrong with it
    };

    std::string file;   // the source: a file, a folder
    std::string shape;  // what its rows were taken for
    std::int64_t rows = 0;
    std::int64_t kept = 0;       // samples
    std::int64_t truncated = 0;  // samples that lost tokens to max_length
    std::int64_t tokens = 0;
    std::int64_t target_tokens = 0;
    std::int64_t longest = 0;
    std::array<Finding, kDropReasons> dropped;
    Finding skipped;  // rows that could not be read, with on_error = skip
    // Samples in which an answer's first token began in what stands before it, so that a prompt that is
    // asked alone ends in other tokens than those trained on.
    Finding merged_start;

    std::int64_t dropped_rows() const;
    void drop(DropReason reason, const std::string& where, const std::string& example);
    // "train.jsonl: 400 rows, 21,340 tokens (1,600 targets), longest 212" and one line for each
    // thing that a user should know: what the rows were taken for, which were truncated, dropped, skipped.
    std::string summary() const;
};

// Of all sources together. The report of one is itself.
ReadReport join(const std::vector<ReadReport>& reports);

struct SampleSet {
    std::vector<Sample> samples;
    ReadReport report;
};

}  // namespace garam
