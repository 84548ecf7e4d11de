#include "garam/data/data_sources.h"

#include <algorithm>
#include <utility>

#include "garam/core/error.h"

namespace garam {
namespace {

// Rows that are looked at to tell what they are.
constexpr std::int64_t kFirstRows = 32;

std::vector<Json> first_rows(const RowBatch& batch) {
    std::vector<Json> rows;
    for (std::int64_t i = 0; i < std::min(batch.size(), kFirstRows); ++i) {
        try {
            Json row = batch.row(i);
            if (row.is_object()) rows.push_back(std::move(row));
        } catch (const Error&) {
            // It is told, or counted, when it is its turn.
        }
    }
    return rows;
}

}  // namespace

DataPlaces training_places(const DataConfig& config) {
    return {config.train, config.train_split};
}

DataPlaces validation_places(const DataConfig& config) {
    if (config.validation.empty() && config.validation_split.empty()) return {};
    return {config.validation.empty() ? config.train : config.validation, config.validation_split};
}

OpenSource::OpenSource(std::string name, Open open, const DataConfig& config, std::string split)
    : name_(std::move(name)),
      open_(std::move(open)),
      rows_(open_({})),
      config_(&config),
      split_(std::move(split)) {}

void OpenSource::rewind() {
    rows_ = open_({});
    recogniser_.reset();
}

double OpenSource::part_read() const {
    return rows_->part_read();
}

std::unique_ptr<RowBatch> OpenSource::next(std::int64_t rows_before) {
    try {
        std::unique_ptr<RowBatch> batch = rows_->next();
        if (batch == nullptr || recogniser_ != nullptr) return batch;
        recogniser_ =
            std::make_unique<RowRecogniser>(rows_->schema(), first_rows(*batch), *config_, name_);
        const RowColumns* const declared = recogniser_->declared();
        const std::string& format = rows_->schema().format;
        const bool is_table = format == "arrow" || format == "parquet";
        if (!is_table || declared == nullptr ||
            declared->used.size() == rows_->schema().columns.size())
            return batch;
        batch.reset();
        rows_ = open_(declared->used);
        return rows_->next();
    } catch (const Error& error) {
        if (rows_before == 0) throw;
        throw Error(std::string(error.what()) + " (behind row " + std::to_string(rows_before) +
                    " of " + name_ + "; what follows cannot be read)");
    }
}

RowSourceOptions source_options(const DataConfig& config, const std::string& split) {
    RowSourceOptions options;
    options.split = split;
    if (config.format != "auto") options.format = config.format;
    if (config.csv_delimiter) {
        const bool tab = *config.csv_delimiter == "tab" || *config.csv_delimiter == "\\t";
        options.csv_delimiter = tab ? '\t' : config.csv_delimiter->front();
    }
    options.csv_header = config.csv_header;
    options.csv_columns = config.csv_columns;
    if (config.csv_quote)
        options.csv_quote = config.csv_quote->empty() ? '\0' : config.csv_quote->front();
    options.text_unit = config.text_unit;
    return options;
}

std::vector<OpenSource> open_sources(const DataPlaces& places, const DataConfig& config) {
    const RowSourceOptions options = source_options(config, places.split);
    const std::string suffix = places.split.empty() ? "" : " (" + places.split + ")";
    std::vector<OpenSource> sources;
    if (places.paths.empty()) return sources;
    if (!config.zip.empty()) {
        std::string name;
        for (const std::string& path : places.paths)
            name += (name.empty() ? "" : " + ") + path;
        sources.emplace_back(
            name + suffix,
            [paths = places.paths, names = config.zip, options](const std::vector<std::string>&) {
                return open_columns(paths, names, options);
            },
            config, places.split);
        return sources;
    }
    for (const std::string& path : places.paths)
        sources.emplace_back(
            path + suffix,
            [path, options](const std::vector<std::string>& only) {
                RowSourceOptions narrowed = options;
                narrowed.only_columns = only;
                return open_rows(path, narrowed);
            },
            config, places.split);
    return sources;
}

}  // namespace garam
