#include "garam/data/rows/labelled_rows.h"

#include <algorithm>
#include <set>
#include <utility>

#include "garam/core/error.h"
#include "garam/data/rows/row_loop.h"
#include "garam/data/samples/read_samples.h"

namespace garam {
namespace {

struct EncodedLabelled {
    LabelledRow row;
    std::string label;
};

RowLoopOptions loop_options(const DataConfig& config) {
    RowLoopOptions options;
    options.skip = config.on_error == "skip";
    options.max_rows = config.max_rows;
    return options;
}

struct FoundLabels {
    std::set<std::string> labels;
    std::vector<std::string> declared;  // by the schema of a source
};

FoundLabels collect_labels(std::vector<OpenSource> sources, const DataConfig& config,
                           const RowEncoder& encoder) {
    FoundLabels found;
    for (OpenSource& source : sources) {
        ReadReport report;
        for_each_row<std::string>(
            source, loop_options(config), report,
            [&](const Json& row, const RowColumns& columns, const std::string& where) {
                return encoder.labelled(row, columns, where).label;
            },
            [&](std::string&& label, const std::string& where, std::int64_t) {
                found.labels.insert(std::move(label));
                if (found.labels.size() > kMaxLabels) {
                    throw Error(where + ": more than " + std::to_string(kMaxLabels) +
                                " different labels: these are no classes (data.label_column)");
                }
            });
        if (found.declared.empty()) found.declared = source.recogniser().class_names();
    }
    return found;
}

// All labels once: first those that have an order of their own, then the others, sorted.
std::vector<std::string> in_order(const FoundLabels& found, const DataConfig& config,
                                  const std::vector<std::string>& more) {
    std::vector<std::string> labels;
    const auto add = [&labels](const std::string& label) {
        if (std::find(labels.begin(), labels.end(), label) == labels.end()) labels.push_back(label);
    };
    for (const auto& [number, name] : config.label_names)
        add(name);
    if (config.label_names.empty() && found.declared.size() <= kMaxLabels)
        for (const std::string& name : found.declared)
            add(name);
    std::set<std::string> others = found.labels;
    others.insert(more.begin(), more.end());
    for (const std::string& label : others)
        add(label);
    return labels;
}

// The question and all answers, split where the first of them parts from the question.
LabelledRow encode_row(const RowEncoder& encoder, const std::vector<std::string>& labels,
                       const RowEncoder::Labelled& item, const std::string& where) {
    LabelledRow row;
    row.prompt_ids = encoder.question(item, where);
    std::vector<std::vector<std::int32_t>> whole;
    std::size_t split = row.prompt_ids.size();
    for (const std::string& label : labels) {
        whole.push_back(encoder.answered(item, label, where));
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
    row.text = item.text;
    return row;
}

}  // namespace

RowNumbers held_out_rows(const SampleTables& tables, double fraction, std::uint64_t seed) {
    const SampleSelection held_out = hold_out(weighted(tables, {}), fraction, seed).held_out;
    RowNumbers rows(tables.sources.size());
    for (std::int64_t i = 0; i < held_out.size(); ++i) {
        const SampleSelection::Origin origin = held_out.origin(held_out.id(i));
        rows[static_cast<std::size_t>(origin.source)].push_back(origin.row);
    }
    for (std::vector<std::int64_t>& numbers : rows)
        std::sort(numbers.begin(), numbers.end());
    return rows;
}

LabelledSet read_labelled_rows(const DataPlaces& places, const DataConfig& config,
                               const EncodingSettings& settings, const Tokenizer& tokenizer,
                               const std::vector<std::string>& more_labels,
                               const RowNumbers& only) {
    const RowEncoder encoder(config, settings, tokenizer);
    LabelledSet set;
    // The labels must be known before the first row can be encoded: two passes over the rows.
    const FoundLabels found = collect_labels(open_sources(places, config), config, encoder);
    set.labels = in_order(found, config, more_labels);
    std::vector<OpenSource> sources = open_sources(places, config);
    if (set.labels.size() < 2) {
        throw Error(sources.front().name() + ": all rows have the label \"" + set.labels.front() +
                    "\": there is nothing to tell apart");
    }
    std::vector<ReadReport> reports;
    for (std::size_t s = 0; s < sources.size(); ++s) {
        RowLoopOptions options = loop_options(config);
        if (!only.empty()) {
            options.counts = [&numbers = only[s]](std::int64_t number) {
                return std::binary_search(numbers.begin(), numbers.end(), number);
            };
        }
        ReadReport report;
        for_each_row<EncodedLabelled>(
            sources[s], options, report,
            [&](const Json& row, const RowColumns& columns, const std::string& where) {
                const RowEncoder::Labelled item = encoder.labelled(row, columns, where);
                return EncodedLabelled{encode_row(encoder, set.labels, item, where), item.label};
            },
            [&](EncodedLabelled&& encoded, const std::string& where, std::int64_t number) {
                LabelledRow& row = encoded.row;
                std::size_t longest = 0;
                for (const auto& candidate : row.candidates)
                    longest = std::max(longest, candidate.size());
                const auto tokens = static_cast<std::int64_t>(row.prompt_ids.size() + longest);
                if (tokens > settings.max_length) {
                    report.drop(DropReason::beyond_max_length, where, quoted_beginning(row.text));
                    return;
                }
                const auto label = std::find(set.labels.begin(), set.labels.end(), encoded.label);
                if (label == set.labels.end())
                    throw Error(report.file + " changed while it was read");
                row.row = number;
                row.label = label - set.labels.begin();
                ++report.kept;
                report.tokens += tokens;
                report.target_tokens += static_cast<std::int64_t>(
                    row.candidates[static_cast<std::size_t>(row.label)].size());
                report.longest = std::max(report.longest, tokens);
                set.rows.push_back(std::move(row));
            });
        if (!only.empty()) report.rows = static_cast<std::int64_t>(only[s].size());
        reports.push_back(std::move(report));
    }
    set.report = join(reports);
    if (set.rows.empty()) {
        throw Error(set.report.file + ": none of its " + std::to_string(set.report.rows) +
                    " rows fits max_length = " + std::to_string(settings.max_length) +
                    " together with its answer: raise it");
    }
    return set;
}

std::vector<std::string> read_labels(std::vector<OpenSource> sources, const DataConfig& config,
                                     const Tokenizer& tokenizer) {
    const RowEncoder encoder(config, EncodingSettings{}, tokenizer);
    return in_order(collect_labels(std::move(sources), config, encoder), config, {});
}

}  // namespace garam
