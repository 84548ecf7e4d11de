// What `garam eval` tells of labelled rows: for reading, and as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "garam/core/json.h"
#include "garam/serve/classification.h"

namespace garam {

// One row, as --show has it.
struct ShownRow {
    std::string text;
    std::int64_t label = 0;
    std::optional<std::int64_t> predicted;  // none: the answer holds no verdict
    std::optional<double> probability;      // of the likeliest label, among the labels
    std::optional<std::string> answer;      // where one was generated
};

struct LabelsReport {
    explicit LabelsReport(const Confusion& of) : confusion(of) {}
    const Confusion& confusion;
    std::optional<double> ece;
    std::string positive_label;  // empty: none
    std::vector<ShownRow> shown;
    double seconds = 0;

    std::string to_text() const;
    // accuracy, macro_f1, f1 with a positive label, ece, unparsable, per_label, confusion, seconds, examples.
    Json to_json(const std::string& file) const;

  private:
    std::optional<Confusion::LabelScore> positive() const;
};

}  // namespace garam
