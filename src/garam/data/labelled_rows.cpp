#include "garam/data/labelled_rows.h"

#include <algorithm>
#include <set>
#include <utility>

#include "garam/core/error.h"
#include "garam/data/row_loop.h"

namespace garam {
namespace {

struct EncodedLabelled {
    LabelledRow row;
    std::string label;
};

std::set<std::string> collect_labels(const std::filesystem::path& file, const RowEncoder& encoder,
                                     bool skip) {
    std::set<std::string> labels;
    ReadReport report;
    for_each_row<std::string>(
        file, skip, report,
        [&](const Json& row, const std::string& where) {
            return encoder.labelled(row, where).label;
        },
        [&](std::string&& label, std::int64_t line, std::int64_t) {
            labels.insert(std::move(label));
            if (labels.size() > kMaxLabels) {
                throw Error(report.file + ":" + std::to_string(line) + ": more than " +
                            std::to_string(kMaxLabels) +
                            " different labels: these are no classes (data.label_column)");
            }
        });
    return labels;
}

// The question and all answers, split where the first of them parts from the question.
LabelledRow encode_row(const RowEncoder& encoder, const std::vector<std::string>& labels,
                       const std::string& text, const std::string& where) {
    LabelledRow row;
    row.prompt_ids = encoder.question(text, where);
    std::vector<std::vector<std::int32_t>> whole;
    std::size_t split = row.prompt_ids.size();
    for (const std::string& label : labels) {
        whole.push_back(encoder.answered(text, label, where));
        split = std::min(split, common_prefix(row.prompt_ids, whole.back()));
    }
    for (std::size_t k = 0; k < whole.size(); ++k) {
        if (split == 0 || whole[k].size() <= split) {
            throw Error(where + ": the answer \"" + labels[k] +
                        "\" cannot be told from the question: no token of it is left to score");
        }
        row.candidates.emplace_back(whole[k].begin() + static_cast<std::ptrdiff_t>(split),
                                    whole[k].end());
    }
    row.prompt_ids.resize(split);
    return row;
}

}  // namespace

LabelledSet read_labelled_rows(const std::filesystem::path& file, const DataConfig& config,
                               const EncodingSettings& settings, const Tokenizer& tokenizer,
                               const std::vector<std::string>& more_labels) {
    const RowEncoder encoder(config, settings, tokenizer);
    const bool skip = config.on_error == "skip";
    LabelledSet set;
    // The labels must be known before the first row can be encoded: two passes over the file.
    std::set<std::string> labels = collect_labels(file, encoder, skip);
    labels.insert(more_labels.begin(), more_labels.end());
    if (labels.size() < 2) {
        throw Error(file.string() + ": all rows have the label \"" + *labels.begin() +
                    "\": there is nothing to tell apart");
    }
    set.labels.assign(labels.begin(), labels.end());

    ReadReport& report = set.report;
    for_each_row<EncodedLabelled>(
        file, skip, report,
        [&](const Json& row, const std::string& where) {
            RowEncoder::Labelled item = encoder.labelled(row, where);
            EncodedLabelled encoded;
            encoded.row = encode_row(encoder, set.labels, item.text, where);
            encoded.row.text = std::move(item.text);
            encoded.label = std::move(item.label);
            return encoded;
        },
        [&](EncodedLabelled&& encoded, std::int64_t line, std::int64_t number) {
            LabelledRow& row = encoded.row;
            std::size_t longest = 0;
            for (const auto& candidate : row.candidates)
                longest = std::max(longest, candidate.size());
            const auto tokens = static_cast<std::int64_t>(row.prompt_ids.size() + longest);
            if (tokens > settings.max_length) {
                report.drop(DropReason::beyond_max_length, line, quoted_beginning(row.text));
                return;
            }
            const auto found =
                std::lower_bound(set.labels.begin(), set.labels.end(), encoded.label);
            if (found == set.labels.end() || *found != encoded.label)
                throw Error(report.file + " changed while it was read");
            row.row = number;
            row.label = found - set.labels.begin();
            ++report.kept;
            report.tokens += tokens;
            report.target_tokens += static_cast<std::int64_t>(
                row.candidates[static_cast<std::size_t>(row.label)].size());
            report.longest = std::max(report.longest, tokens);
            set.rows.push_back(std::move(row));
        });
    if (set.rows.empty()) {
        throw Error(report.file + ": none of its " + std::to_string(report.rows) +
                    " rows fits max_length = " + std::to_string(settings.max_length) +
                    " together with its answer: raise it");
    }
    return set;
}

std::vector<std::string> read_labels(const std::filesystem::path& file, const DataConfig& config,
                                     const Tokenizer& tokenizer) {
    const RowEncoder encoder(config, EncodingSettings{}, tokenizer);
    const std::set<std::string> labels = collect_labels(file, encoder, config.on_error == "skip");
    return {labels.begin(), labels.end()};
}

}  // namespace garam
