#include "garam/app/labels_report.h"

#include <algorithm>
#include <cstdio>

#include "garam/app/command_line.h"
#include "garam/data/rows/row_encoder.h"

namespace garam {
namespace {

std::string fixed(double value, int digits) {
    char text[64];
    std::snprintf(text, sizeof(text), "%.*f", digits, value);
    return text;
}

std::string padded(std::string text, std::size_t width) {
    if (text.size() < width) text.insert(0, width - text.size(), ' ');
    return text;
}

}  // namespace

std::optional<Confusion::LabelScore> LabelsReport::positive() const {
    const std::vector<std::string>& labels = confusion.labels();
    const auto place = std::find(labels.begin(), labels.end(), positive_label);
    if (place == labels.end()) return std::nullopt;
    return confusion.score(place - labels.begin());
}

std::string LabelsReport::to_text() const {
    // Labels and answers are data: what they hold must not steer the terminal.
    std::vector<std::string> labels;
    for (const std::string& label : confusion.labels())
        labels.push_back(one_line(label));
    const auto count = static_cast<std::int64_t>(labels.size());
    const auto name = [&](std::int64_t label) { return labels[static_cast<std::size_t>(label)]; };
    std::string text;
    for (const ShownRow& row : shown) {
        text += (row.predicted == row.label ? "right  " : "wrong  ") +
                (row.predicted ? name(*row.predicted) : std::string("unparsable"));
        if (row.probability) text += " " + fixed(*row.probability, 3);
        if (row.predicted != row.label) text += " (is " + name(row.label) + ")";
        text += "  " + quoted_beginning(row.text);
        if (row.answer) text += " -> " + quoted_beginning(*row.answer);
        text += "\n";
    }
    text += "accuracy  " + fixed(confusion.accuracy(), 4) + "  (" +
            std::to_string(confusion.total()) + " rows, " + fixed(seconds, 1) + " s)\n";
    if (const auto score = positive())
        text += "F1        " + fixed(score->f1, 4) + "  (of " + one_line(positive_label) + ")\n";
    text += "macro F1  " + fixed(confusion.macro_f1(), 4) + "\n";
    if (ece)
        text += "ece       " + fixed(*ece, 4) +
                "  (expected calibration error of the labels' "
                "probabilities)\n";
    if (confusion.unparsable() > 0)
        text += "unparsable answers  " + std::to_string(confusion.unparsable()) +
                "  (counted as wrong)\n";
    std::size_t width = 5;
    for (const std::string& label : labels)
        width = std::max(width, label.size());
    text += "\n" + padded("label", width) + "  precision  recall      F1  rows\n";
    for (std::int64_t l = 0; l < count; ++l) {
        const Confusion::LabelScore score = confusion.score(l);
        text += padded(name(l), width) + padded(fixed(score.precision, 4), 11) +
                padded(fixed(score.recall, 4), 8) + padded(fixed(score.f1, 4), 8) +
                padded(std::to_string(score.support), 6) + "\n";
    }
    text += "\nconfusion (row: true label, column: prediction)\n" + std::string(width, ' ');
    for (const std::string& label : labels)
        text += padded(label, width + 2);
    const bool gaps = confusion.unparsable() > 0;
    text += gaps ? "  unparsable\n" : "\n";
    for (std::int64_t truth = 0; truth < count; ++truth) {
        text += padded(name(truth), width);
        for (std::int64_t predicted = 0; predicted < count; ++predicted)
            text += padded(std::to_string(confusion.count(truth, predicted)), width + 2);
        if (gaps) text += padded(std::to_string(confusion.unparsable(truth)), 12);
        text += "\n";
    }
    return text;
}

Json LabelsReport::to_json(const std::string& file) const {
    const std::vector<std::string>& labels = confusion.labels();
    Json per_label{Json::Object{}};
    Json::Array counts;
    Json::Array names;
    Json::Array unparsable;
    for (std::size_t l = 0; l < labels.size(); ++l) {
        const auto label = static_cast<std::int64_t>(l);
        const Confusion::LabelScore score = confusion.score(label);
        per_label.set(labels[l], Json(Json::Object{{"precision", score.precision},
                                                   {"recall", score.recall},
                                                   {"f1", score.f1},
                                                   {"support", score.support}}));
        Json::Array row;
        for (std::size_t p = 0; p < labels.size(); ++p)
            row.emplace_back(confusion.count(label, static_cast<std::int64_t>(p)));
        counts.emplace_back(std::move(row));
        names.emplace_back(labels[l]);
        unparsable.emplace_back(confusion.unparsable(label));
    }
    const Confusion::LabelScore macro = confusion.macro();
    Json json;
    json.set("file", file);
    json.set("rows", confusion.total());
    json.set("accuracy", confusion.accuracy());
    if (const auto score = positive()) {
        json.set("f1", score->f1);
        json.set("precision", score->precision);
        json.set("recall", score->recall);
    }
    json.set("macro_f1", macro.f1);
    json.set("macro_precision", macro.precision);
    json.set("macro_recall", macro.recall);
    if (ece) json.set("ece", *ece);
    json.set("unparsable", confusion.unparsable());
    json.set("per_label", std::move(per_label));
    json.set("confusion", Json(Json::Object{{"labels", Json(std::move(names))},
                                            {"counts", Json(std::move(counts))},
                                            {"unparsable", Json(std::move(unparsable))}}));
    json.set("seconds", seconds);
    if (shown.empty()) return json;
    Json::Array examples;
    for (const ShownRow& row : shown) {
        Json example;
        example.set("text", row.text);
        example.set("label", labels[static_cast<std::size_t>(row.label)]);
        example.set("predicted", row.predicted
                                     ? Json(labels[static_cast<std::size_t>(*row.predicted)])
                                     : Json());
        if (row.probability) example.set("probability", *row.probability);
        if (row.answer) example.set("answer", *row.answer);
        examples.push_back(std::move(example));
    }
    json.set("examples", Json(std::move(examples)));
    return json;
}

}  // namespace garam
