#include "garam/data/samples/sample.h"

#include <algorithm>

#include "garam/core/token_batch.h"

namespace garam {
namespace {

std::string grouped(std::int64_t number) {
    std::string digits = std::to_string(number);
    for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
        digits.insert(static_cast<std::size_t>(at), ",");
    return digits;
}

std::string counted(std::int64_t number, const char* what) {
    return grouped(number) + " " + what + (number == 1 ? "" : "s");
}

}  // namespace

std::int64_t Sample::targets() const {
    std::int64_t count = 0;
    for (std::size_t t = 1; t < labels.size(); ++t)
        count += labels[t] != kIgnore;
    return count;
}

const char* explain(DropReason reason) {
    switch (reason) {
        case DropReason::empty:
            return "the row holds no text";
        case DropReason::no_assistant_turn:
            return "no turn of the assistant to train on";
        case DropReason::nothing_to_predict:
            return "no token after the first one is a target";
        case DropReason::beyond_max_length:
            return "every target lies outside of the max_length tokens that are kept";
        case DropReason::count_:
            break;
    }
    return "?";
}

std::int64_t ReadReport::dropped_rows() const {
    std::int64_t count = 0;
    for (const Finding& finding : dropped)
        count += finding.count;
    return count;
}

void ReadReport::drop(DropReason reason, const std::string& where, const std::string& example) {
    Finding& finding = dropped[static_cast<std::size_t>(reason)];
    if (finding.count++ > 0) return;
    finding.first_where = where;
    finding.first_example = example;
}

std::string ReadReport::summary() const {
    std::string text = file + ": " + counted(kept, "sample") + ", " + counted(tokens, "token") +
                       " (" + counted(target_tokens, "target") + "), longest " + grouped(longest);
    if (kept != rows) text += ", of " + counted(rows, "row");
    if (!shape.empty()) text += "\n" + file + ": " + shape;
    if (truncated > 0) text += "\n" + file + ": " + counted(truncated, "sample") + " truncated";
    for (std::size_t i = 0; i < kDropReasons; ++i) {
        const Finding& finding = dropped[i];
        if (finding.count == 0) continue;
        text += "\n" + file + ": " + counted(finding.count, "row") +
                " dropped: " + explain(static_cast<DropReason>(i)) +
                " (first: " + finding.first_where + ")";
    }
    if (skipped.count > 0) {
        text += "\n" + file + ": " + counted(skipped.count, "row") +
                " skipped (first: " + skipped.first_example + ")";
    }
    return text;
}

ReadReport join(const std::vector<ReadReport>& reports) {
    if (reports.empty()) return {};
    ReadReport all = reports.front();
    const auto add = [](ReadReport::Finding& to, const ReadReport::Finding& from) {
        if (to.count == 0)
            to = from;
        else
            to.count += from.count;
    };
    for (std::size_t r = 1; r < reports.size(); ++r) {
        const ReadReport& one = reports[r];
        all.rows += one.rows;
        all.kept += one.kept;
        all.truncated += one.truncated;
        all.tokens += one.tokens;
        all.target_tokens += one.target_tokens;
        all.longest = std::max(all.longest, one.longest);
        for (std::size_t i = 0; i < kDropReasons; ++i)
            add(all.dropped[i], one.dropped[i]);
        add(all.skipped, one.skipped);
        add(all.merged_start, one.merged_start);
        if (one.shape != all.shape) all.shape.clear();
    }
    if (reports.size() > 1) all.file = std::to_string(reports.size()) + " sources";
    return all;
}

}  // namespace garam
