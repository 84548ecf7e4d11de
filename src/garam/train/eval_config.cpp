#include "garam/train/eval_config.h"

#include <algorithm>
#include <iterator>

#include "garam/core/error.h"

namespace garam {
namespace {

std::string listed(const std::vector<std::string>& names) {
    std::string list;
    for (const std::string& name : names)
        list += (list.empty() ? "" : ", ") + name;
    return list;
}

}  // namespace

bool EvalConfig::has(const std::string& metric) const {
    return std::find(metrics.begin(), metrics.end(), metric) != metrics.end();
}

JudgedRequest EvalConfig::request(std::int64_t seed) const {
    return {.rows = generate_rows,
            .seed = static_cast<std::uint64_t>(seed),
            .verdict_key = verdict_key,
            .candidates = has("ece")};
}

void describe(EvalConfig& c, ConfigTable& table) {
    table.add(
        "eval.metrics", &c.metrics,
        "What evaluations tell besides eval_loss: accuracy, precision, recall, f1, "
        "confusion_matrix and ece (expected calibration error of the labels' probabilities), of "
        "the verdicts that the model writes as answers to validation rows. In Transformers this "
        "is a function, compute_metrics.");
    table.add(
        "eval.generate_rows", &c.generate_rows,
        "At most so many validation rows are answered in an evaluation, always the same ones, "
        "drawn from train.seed; 0: all.",
        between(0, 1LL << 31));
    table.add("eval.max_new_tokens", &c.max_new_tokens,
              "Tokens that an answer may have; of a longer one the verdict is read from these.",
              between(1, 1 << 20));
    table.add("eval.verdict_key", &c.verdict_key,
              "Where answers are JSON objects, the key under which the label stands.");
    table.add(
        "eval.positive_label", &c.positive_label,
        "The label whose precision, recall and f1 are reported as the whole's (scikit-learn's "
        "average=binary); empty: the means over all labels (macro).");
}

void validate(const EvalConfig& config) {
    for (const std::string& metric : config.metrics) {
        if (std::find(std::begin(kMetricNames), std::end(kMetricNames), metric) !=
            std::end(kMetricNames))
            continue;
        throw Error("eval.metrics: \"" + metric + "\" is not supported; choose of " +
                    listed({std::begin(kMetricNames), std::end(kMetricNames)}) +
                    " (eval_loss is always there)");
    }
    if (config.judges() && config.verdict_key.empty())
        throw Error("eval.verdict_key is empty: name the key of JSON answers, such as verdict");
}

void check_labels(const EvalConfig& config, const std::vector<std::string>& labels) {
    if (config.positive_label.empty()) return;
    if (std::find(labels.begin(), labels.end(), config.positive_label) != labels.end()) return;
    throw Error("eval.positive_label: \"" + config.positive_label +
                "\" is none of the labels: " + listed(labels));
}

MetricValues metric_values(const EvalConfig& config, const Judgement& judgement) {
    const Confusion& confusion = judgement.confusion;
    const std::vector<std::string>& labels = confusion.labels();
    Confusion::LabelScore whole = confusion.macro();
    const auto positive = std::find(labels.begin(), labels.end(), config.positive_label);
    if (positive != labels.end()) whole = confusion.score(positive - labels.begin());

    MetricValues values;
    if (config.has("accuracy")) values.emplace_back("eval_accuracy", confusion.accuracy());
    const auto add = [&](const std::string& metric, double Confusion::LabelScore::*value) {
        if (!config.has(metric)) return;
        values.emplace_back("eval_" + metric, whole.*value);
        for (std::size_t l = 0; l < labels.size(); ++l)
            values.emplace_back("eval_" + metric + "_" + labels[l],
                                confusion.score(static_cast<std::int64_t>(l)).*value);
    };
    add("precision", &Confusion::LabelScore::precision);
    add("recall", &Confusion::LabelScore::recall);
    add("f1", &Confusion::LabelScore::f1);
    if (config.has("ece")) values.emplace_back("eval_ece", judgement.calibration.expected_error());
    values.emplace_back("eval_unparsable", static_cast<double>(confusion.unparsable()));
    values.emplace_back("eval_samples", static_cast<double>(confusion.total()));
    return values;
}

std::string reported_name(const std::string& metric) {
    if (metric.empty()) return "eval_loss";
    return metric.starts_with("eval_") ? metric : "eval_" + metric;
}

bool greater_is_better(const std::string& metric) {
    const std::string name = reported_name(metric);
    return !name.ends_with("loss") && name != "eval_ece" && name != "eval_unparsable";
}

Json confusion_json(const Confusion& confusion) {
    Json::Array labels;
    Json::Array counts;
    Json::Array unparsable;
    for (std::size_t t = 0; t < confusion.labels().size(); ++t) {
        const auto truth = static_cast<std::int64_t>(t);
        Json::Array row;
        for (std::size_t p = 0; p < confusion.labels().size(); ++p)
            row.emplace_back(confusion.count(truth, static_cast<std::int64_t>(p)));
        labels.emplace_back(confusion.labels()[t]);
        counts.emplace_back(std::move(row));
        unparsable.emplace_back(confusion.unparsable(truth));
    }
    return Json(Json::Object{{"labels", Json(std::move(labels))},
                             {"counts", Json(std::move(counts))},
                             {"unparsable", Json(std::move(unparsable))}});
}

}  // namespace garam
