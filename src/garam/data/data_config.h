// What the user says about the data: the keys `data.*` of the configuration.
//
// Rows come from files of any kind that row_source.h reads. What a row means is recognised from its
// columns (row_schema.h), or said by `columns`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "garam/core/config_table.h"

namespace garam {

struct DataConfig {
    std::vector<std::string> train;       // files, folders, patterns, hub names to train on
    std::vector<std::string> validation;  // the same to evaluate on; empty: see validation_split
    // Passes over each source of `train` in an epoch, one a source; empty: one each. A fraction takes
    // that share of a source's rows, drawn by seed.
    std::vector<double> weights;
    std::string train_split;         // of sources that hold several, with a slice: "train[:90%]"
    std::string validation_split;    // the same; with `validation` empty, of the sources of `train`
    double validation_fraction = 0;  // of the training rows, held out by seed
    std::string format = "auto";     // of the files; auto: by name and content
    // Our name of a column to theirs; kColumnNames are ours. A name with dots is a path into maps.
    TextMap columns;
    std::string text_column = "text";
    // Empty: labels are ignored, the text alone is trained on.
    std::string label_column = "label";
    TextMap label_names;                       // a label as it stands in the data to its name
    TextMap roles;                             // a role as it stands in the data to ours
    std::optional<std::string> csv_delimiter;  // one character, or "tab"
    std::optional<bool> csv_header;
    std::vector<std::string> csv_columns;
    std::optional<std::string> csv_quote;  // one character; empty: none
    std::string text_unit = "line";        // line, paragraph, document
    // The files of `train` (and of `validation`) are columns of these names, line by line.
    std::vector<std::string> zip;
    std::int64_t max_rows = 0;  // of each source, from its start; 0: all
    bool shuffle = true;        // another order each epoch
    // What a row that cannot be read does: "fail" stops, "skip" counts it and goes on.
    std::string on_error = "fail";
    // What is asked about the text of a labelled row. "{text}" stands for the text; without it the
    // text follows on a new line.
    std::string instruction;
    // What is answered: "{label}" stands for the label's name; empty: the name alone.
    std::string answer;
    // System message of labelled rows and of rows of instruction and output; empty: none beyond what
    // the chat template adds itself.
    std::string system;
    std::string chat_template;     // a file, or the name of a built-in one; empty: the model's
    TextMap chat_template_kwargs;  // variables of the chat template: enable_thinking
    std::string train_on_turns = "all";  // of the assistant: all, last
    bool cache = true;                   // keep the samples for the next run
    std::string cache_dir;               // empty: the user's cache folder
    // Tokens that the vocabulary gets, where it has them not.
    std::vector<std::string> add_special_tokens;

    // Whether there are rows to evaluate on.
    bool evaluates() const {
        return !validation.empty() || !validation_split.empty() || validation_fraction > 0;
    }
};

// The names that `columns` may map; role and content are those within a message.
inline constexpr const char* kColumnNames[] = {"messages",
                                               "prompt",
                                               "completion",
                                               "text",
                                               "label",
                                               "instruction",
                                               "input",
                                               "output",
                                               "input_ids",
                                               "labels",
                                               "attention_mask",
                                               "completion_mask",
                                               "assistant_masks",
                                               "tools",
                                               "system",
                                               "chat_template_kwargs",
                                               "role",
                                               "content"};

}  // namespace garam
