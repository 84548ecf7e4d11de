#include "garam/data/read_samples.h"

#include <algorithm>
#include <utility>

#include "garam/core/error.h"
#include "garam/data/row_loop.h"

namespace garam {
namespace {

// No row is left: says how many there were, why, and shows the first one of each reason.
[[noreturn]] void refuse_without_targets(const ReadReport& report,
                                         const EncodingSettings& settings) {
    std::string message = report.file + ": none of its " + std::to_string(report.rows) +
                          " rows has a token to train on";
    for (std::size_t i = 0; i < kDropReasons; ++i) {
        const ReadReport::Finding& finding = report.dropped[i];
        if (finding.count == 0) continue;
        const auto reason = static_cast<DropReason>(i);
        message += "; " + std::to_string(finding.count) + " of them: " + explain(reason);
        if (reason == DropReason::beyond_max_length)
            message += " (max_length is " + std::to_string(settings.max_length) + ": raise it)";
        message +=
            ", first at line " + std::to_string(finding.first_line) + ", " + finding.first_example;
    }
    if (report.skipped.count > 0)
        message += "; " + std::to_string(report.skipped.count) + " were skipped";
    throw Error(message);
}

// take(Sample&&) is called for each in order.
template <typename Take>
ReadReport read_each(const std::filesystem::path& file, const DataConfig& config,
                     const EncodingSettings& settings, const Tokenizer& tokenizer,
                     const Take& take) {
    const RowEncoder encoder(config, settings, tokenizer);
    ReadReport report;
    for_each_row<EncodedRow>(
        file, config.on_error == "skip", report,
        [&](const Json& row, const std::string& where) { return encoder.encode(row, where); },
        [&](EncodedRow&& encoded, std::int64_t line, std::int64_t row) {
            if (encoded.dropped) {
                report.drop(*encoded.dropped, line, encoded.beginning);
                return;
            }
            encoded.sample.row = row;
            ++report.kept;
            report.truncated += encoded.truncated;
            report.tokens += encoded.sample.tokens();
            report.target_tokens += encoded.sample.targets();
            report.longest = std::max(report.longest, encoded.sample.tokens());
            take(std::move(encoded.sample));
        });
    if (report.kept == 0) refuse_without_targets(report, settings);
    return report;
}

}  // namespace

SampleSet read_samples(const std::filesystem::path& file, const DataConfig& config,
                       const EncodingSettings& settings, const Tokenizer& tokenizer) {
    SampleSet set;
    set.report = read_each(file, config, settings, tokenizer,
                           [&](Sample&& sample) { set.samples.push_back(std::move(sample)); });
    return set;
}

ReadReport read_samples(const std::filesystem::path& file, const DataConfig& config,
                        const EncodingSettings& settings, const Tokenizer& tokenizer,
                        SampleTableWriter& table) {
    return read_each(file, config, settings, tokenizer,
                     [&](Sample&& sample) { table.append(sample, sample.tokens()); });
}

SampleTable read_sample_table(const std::filesystem::path& file, const DataConfig& config,
                              const EncodingSettings& settings, const Tokenizer& tokenizer) {
    SampleTableWriter writer;
    return writer.finish(read_samples(file, config, settings, tokenizer, writer));
}

}  // namespace garam
