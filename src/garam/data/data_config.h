// What the user says about the data: the keys `data.*` of the configuration.
//
// A file holds one JSON object a line (JSON Lines, UTF-8). Each row is taken by its own keys, in
// this order:
//   messages            a chat: [{"role": ..., "content": ...}, ...]
//   prompt, completion  two texts
//   <text>, <label>     a text and its class; asked for through `instruction`
//   <text>              plain text
// <text> and <label> are the columns named below.
#pragma once

#include <string>
#include <vector>

namespace garam {

struct DataConfig {
    std::string train;       // file to train on
    std::string validation;  // file to evaluate on; empty: none
    bool shuffle = true;     // another order each epoch
    // What a row that cannot be read does: "fail" stops, "skip" counts it and goes on.
    std::string on_error = "fail";
    // What is asked about the text of a labelled row. "{text}" stands for the text; without it the
    // text follows on a new line.
    std::string instruction;
    // System message of labelled rows; empty: none beyond what the chat template adds itself.
    std::string system;
    std::string text_column = "text";
    // Empty: labels are ignored, the text alone is trained on.
    std::string label_column = "label";
    // Tokens that the vocabulary gets, where it has them not.
    std::vector<std::string> add_special_tokens;
};

}  // namespace garam
