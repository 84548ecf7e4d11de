// The keys `eval.*`: what evaluations tell besides the loss.
//
// Metrics are of verdicts: answers to validation rows are generated, each is read as a label, and these are
// counted. Names and averages are scikit-learn's; reported are they as Transformers does, with eval_ before.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "garam/core/config_table.h"
#include "garam/data/judged_rows.h"
#include "garam/serve/judging.h"

namespace garam {

struct EvalConfig {
    std::vector<std::string> metrics;  // of kMetricNames; empty: the loss alone
    std::int64_t generate_rows = 200;  // at most so many, drawn by train.seed; 0: all
    std::int64_t max_new_tokens = 64;
    std::string verdict_key = "verdict";
    std::string positive_label;  // of binary precision, recall and f1; empty: means over the labels

    bool has(const std::string& metric) const;
    bool judges() const { return !metrics.empty(); }
    JudgedRequest request(std::int64_t seed) const;
};

inline constexpr const char* kMetricNames[] = {"accuracy", "precision",        "recall",
                                               "f1",       "confusion_matrix", "ece"};

// Adds the keys `eval.*`; `config` must outlive the table.
void describe(EvalConfig& config, ConfigTable& table);
// Throws Error naming the metric that there is not.
void validate(const EvalConfig& config);
// The same of what only the rows tell: that the positive label is one of theirs.
void check_labels(const EvalConfig& config, const std::vector<std::string>& labels);

// Numbers of an evaluation by name: eval_accuracy, eval_f1, eval_f1_spam, …, and with any of them
// eval_samples (rows judged) and eval_unparsable (answers without a verdict). The matrix is no number.
using MetricValues = std::vector<std::pair<std::string, double>>;
MetricValues metric_values(const EvalConfig& config, const Judgement& judgement);

// The name as it is reported, with eval_ before it; of none, the loss's.
std::string reported_name(const std::string& metric);
// Whether a higher value is a better one: as in Transformers what does not end with "loss", but for ece and
// unparsable.
bool greater_is_better(const std::string& metric);

// {"labels": […], "counts": [[…]], "unparsable": […]}: a row a true label, a column a verdict.
Json confusion_json(const Confusion& confusion);

}  // namespace garam
