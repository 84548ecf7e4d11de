// The sources of rows that `data.*` names, opened.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "garam/data/data_config.h"
#include "garam/data/rows/row_schema.h"
#include "garam/data/sources/row_source.h"

namespace garam {

// Places that are read alike: those of data.train, or those of data.validation.
struct DataPlaces {
    std::vector<std::string> paths;
    std::string split;

    static DataPlaces of(const std::string& path) { return {{path}, {}}; }
};
DataPlaces training_places(const DataConfig& config);
// Those of data.train with data.validation_split, where data.validation is empty; none where nothing but
// data.validation_fraction is set, or nothing at all.
DataPlaces validation_places(const DataConfig& config);

// A source, and what its rows mean.
class OpenSource {
  public:
    // `only`: the columns that need be read; empty: all.
    using Open = std::function<std::unique_ptr<RowSource>(const std::vector<std::string>& only)>;
    // Keeps a reference to config.
    OpenSource(std::string name, Open open, const DataConfig& config, std::string split = {});

    // "train.jsonl", "data/chats (train[:90%])", "train.en + train.de".
    const std::string& name() const { return name_; }
    const RowSource& rows() const { return *rows_; }
    const std::string& split() const { return split_; }
    // Of the bytes of its files, about; below 0: unknown. May be called while next() runs elsewhere.
    double part_read() const;
    // The next rows; null at the end. `rows_before` were read, which an Error of a broken file tells. The
    // first batch decides what the rows mean; columns of a table that mean nothing are not read any further.
    std::unique_ptr<RowBatch> next(std::int64_t rows_before);
    // At the first row again.
    void rewind();
    // Once next() was called.
    const RowRecogniser& recogniser() const { return *recogniser_; }

  private:
    std::string name_;
    Open open_;
    std::unique_ptr<RowSource> rows_;
    const DataConfig* config_;
    std::string split_;
    std::unique_ptr<RowRecogniser> recogniser_;
};

// One for each path, or one for all with data.zip. Throws Error as open_rows() does.
std::vector<OpenSource> open_sources(const DataPlaces& places, const DataConfig& config);

RowSourceOptions source_options(const DataConfig& config, const std::string& split);

}  // namespace garam
