#include "garam/data/samples/read_samples.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "garam/core/error.h"
#include "garam/data/rows/row_loop.h"

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
        message += ", first at " + finding.first_where + ", " + finding.first_example;
    }
    if (report.skipped.count > 0)
        message += "; " + std::to_string(report.skipped.count) + " were skipped";
    throw Error(message);
}

std::string grouped(double number) {
    std::string digits = std::to_string(static_cast<std::int64_t>(number));
    for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
        digits.insert(static_cast<std::size_t>(at), ",");
    return digits;
}

}  // namespace

std::string ReadingState::to_string() const {
    std::string text = "tokenising " + source + ": ";
    if (part >= 0) text += std::to_string(static_cast<int>(std::min(part, 1.0) * 100)) + " %, ";
    text += grouped(static_cast<double>(rows)) + " rows";
    if (seconds > 0) text += ", " + grouped(static_cast<double>(tokens) / seconds) + " tokens/s";
    return text;
}

ReadReport read_samples(OpenSource& source, const DataConfig& config,
                        const EncodingSettings& settings, const Tokenizer& tokenizer,
                        const std::function<void(Sample&&, std::int64_t full_tokens)>& take,
                        const ReadingProgress& progress) {
    const RowEncoder encoder(config, settings, tokenizer);
    ReadReport report;
    const auto start = std::chrono::steady_clock::now();
    RowLoopOptions options;
    options.skip = config.on_error == "skip";
    options.max_rows = config.max_rows;
    if (progress) {
        options.progress = [&](std::int64_t rows) {
            const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
            progress({source.name(), rows, report.tokens, spent.count(), source.part_read()});
        };
    }
    for_each_row<EncodedRow>(
        source, options, report,
        [&](const Json& row, const RowColumns& columns, const std::string& where) {
            return encoder.encode(row, columns, where);
        },
        [&](EncodedRow&& encoded, const std::string& where, std::int64_t row) {
            if (encoded.dropped) {
                report.drop(*encoded.dropped, where, encoded.beginning);
                return;
            }
            encoded.sample.row = row;
            ++report.kept;
            report.truncated += encoded.truncated;
            if (encoded.merged_start && report.merged_start.count++ == 0) {
                report.merged_start.first_where = where;
                report.merged_start.first_example = encoded.beginning;
            }
            report.tokens += encoded.sample.tokens();
            report.target_tokens += encoded.sample.targets();
            report.longest = std::max(report.longest, encoded.sample.tokens());
            take(std::move(encoded.sample), encoded.full_tokens);
        });
    if (report.kept == 0) refuse_without_targets(report, settings);
    return report;
}

SampleTables read_sample_tables(std::vector<OpenSource> sources, const DataConfig& config,
                                const EncodingSettings& settings, const Tokenizer& tokenizer,
                                const ReadingProgress& progress) {
    std::filesystem::path folder;
    if (config.cache)
        folder = config.cache_dir.empty() ? SampleCache::default_folder()
                                          : std::filesystem::path(config.cache_dir);
    SampleCache cache(folder);
    const std::string digest = folder.empty() ? std::string() : tokenizer_digest(tokenizer);
    SampleTables all;
    if (config.cache && folder.empty())
        all.notes.push_back(
            "there is no home folder to keep samples in; they lie in a temporary file and are made "
            "again by the next run (set data.cache_dir)");
    for (OpenSource& source : sources) {
        const Json key = folder.empty()
                             ? Json()
                             : sample_key(source, config, settings, tokenizer, digest, cache);
        bool begun = false;
        SampleCache::Found found = cache.get(key, [&](SampleTableWriter& table) {
            if (std::exchange(begun, true)) source.rewind();
            return read_samples(
                source, config, settings, tokenizer,
                [&](Sample&& sample, std::int64_t full) { table.append(sample, full); }, progress);
        });
        SourceSamples samples{std::move(found.table), {}, found.made};
        samples.report = samples.table.report();
        samples.report.file = source.name();
        all.sources.push_back(std::move(samples));
    }
    for (std::string& note : cache.take_notes())
        all.notes.push_back(std::move(note));
    return all;
}

std::vector<WeightedTable> weighted(const SampleTables& tables,
                                    const std::vector<double>& weights) {
    std::vector<WeightedTable> all;
    for (std::size_t s = 0; s < tables.sources.size(); ++s)
        all.push_back({tables.sources[s].table, weights.empty() ? 1 : weights.at(s)});
    return all;
}

SampleSet read_samples(const std::filesystem::path& file, const DataConfig& config,
                       const EncodingSettings& settings, const Tokenizer& tokenizer) {
    OpenSource source(
        file.string(),
        [&](const std::vector<std::string>&) {
            return open_rows(file.string(), source_options(config, {}));
        },
        config);
    SampleSet set;
    set.report = read_samples(
        source, config, settings, tokenizer,
        [&](Sample&& sample, std::int64_t) { set.samples.push_back(std::move(sample)); });
    return set;
}

}  // namespace garam
