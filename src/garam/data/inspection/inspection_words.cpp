#include "garam/data/inspection/inspection_words.h"

#include <fmt/format.h>

namespace garam {

double ratio(std::int64_t part, std::int64_t all) {
    return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

std::int64_t all_tokens(const Inspection& inspection) {
    std::int64_t tokens = 0;
    for (const SourceSummary& source : inspection.sources)
        if (!source.validation) tokens += source.report.tokens + source.tokens_lost;
    return tokens;
}

std::int64_t all_targets(const Inspection& inspection) {
    std::int64_t targets = 0;
    for (const SourceSummary& source : inspection.sources)
        if (!source.validation) targets += source.report.target_tokens + source.targets_lost;
    return targets;
}

std::int64_t steps_per_epoch(const Inspection& inspection) {
    for (const BatchingCost& cost : inspection.batchings)
        if (cost.is_set) return cost.steps;
    return 0;
}

std::string name_in_words(const BatchingCost& cost, const Inspection& inspection) {
    if (cost.name == "packed")
        return "packed: " + counted(cost.units, "bin") + " of " +
               grouped_digits(inspection.options.loader.max_length);
    if (cost.name == "grouped") return "grouped by length";
    return inspection.options.loader.shuffle ? "shuffled" : "in the order of the rows";
}

std::string loss_in_words(const Inspection& inspection) {
    std::string text = fmt::format("The smallest max_length that loses nothing is {}",
                                   grouped_digits(inspection.lossless_length));
    if (inspection.one_percent_length < inspection.lossless_length)
        text += fmt::format("; {} cuts at most 1 % of the tokens",
                            grouped_digits(inspection.one_percent_length));
    return text + ".";
}

std::vector<std::string> facts_in_words(const Inspection& inspection) {
    std::vector<std::string> lines;
    std::string tokens = fmt::format("{:.2f} characters a token", inspection.characters_per_token);
    if (inspection.byte_tokens > 0)
        tokens += fmt::format("; {} of the tokens are single bytes",
                              percent(ratio(inspection.byte_tokens, all_tokens(inspection))));
    lines.push_back(tokens + ".");
    std::string longest = "The longest row is " + escape_controls(inspection.longest.where) +
                          " with " + counted(inspection.whole.at.back(), "token");
    if (inspection.truncated.count > 0)
        longest += ", of which " + grouped_digits(inspection.options.loader.max_length) +
                   " are kept at most";
    else if (inspection.longest_step > 0)
        longest += ", in step " + grouped_digits(inspection.longest_step) + " of the first epoch";
    lines.push_back(longest + ".");
    const std::int64_t validation = inspection.validation().kept;
    if (validation > 0 && inspection.shared_prompts.count > inspection.leakage.count)
        lines.push_back(fmt::format("{} of {} for validation ask what a training row asks.",
                                    grouped_digits(inspection.shared_prompts.count),
                                    counted(validation, "row")));
    return lines;
}

std::string example_in_words(const Finding& finding) {
    std::string text;
    for (const RowPlace& place : finding.examples)
        text += (text.empty() ? "" : ", as ") + escape_controls(place.where);
    if (finding.text.empty()) return text;
    return text.empty() ? finding.text : text + ": " + finding.text;
}

}  // namespace garam
