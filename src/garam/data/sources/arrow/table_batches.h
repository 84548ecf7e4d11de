// Arrow's record batches as batches of rows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "garam/core/json.h"
#include "garam/data/sources/arrow/arrow_values.h"
#include "garam/data/sources/file_rows.h"

namespace arrow {
class RecordBatch;
class Schema;
}  // namespace arrow

namespace garam {

// The columns of a table that are read, as its schema and `datasets`' features tell them.
class TableColumns {
  public:
    // `features`: JSON text, or empty: those in the schema's own metadata count then, if there are any.
    TableColumns(std::string file, const std::string& format, const arrow::Schema& schema,
                 const std::string& features);
    const std::string& file() const { return file_; }
    const RowSchema& schema() const { return schema_; }
    const Json& feature(std::size_t column) const { return features_[column]; }
    // Throws Error naming the first column whose type is not read.
    void check_types() const;

  private:
    std::string file_;
    RowSchema schema_;
    std::vector<Json> features_;
    std::string refusal_;
};

// The values of a record batch. Throws Error when its arrays are not what they say.
class TableValues {
  public:
    TableValues(std::shared_ptr<const TableColumns> columns,
                const std::shared_ptr<arrow::RecordBatch>& batch, std::int64_t first_row);
    std::int64_t size() const { return size_; }
    std::size_t bytes() const { return bytes_; }
    Json row(std::int64_t i) const;
    std::string where(std::int64_t i) const;

  private:
    std::shared_ptr<const TableColumns> columns_;
    std::vector<std::unique_ptr<ArrowValues>> values_;
    std::int64_t size_;
    std::size_t bytes_;
    std::int64_t first_row_;
};

// Cuts record batches into batches of rows.
class TableCutter {
  public:
    explicit TableCutter(std::shared_ptr<const TableColumns> columns)
        : columns_(std::move(columns)) {}
    void put(const std::shared_ptr<arrow::RecordBatch>& batch);
    // Nothing when the last one that was put is used up.
    ReadRows take();

  private:
    std::shared_ptr<const TableColumns> columns_;
    std::shared_ptr<const TableValues> values_;
    std::int64_t begin_ = 0;
    std::int64_t step_ = 0;
    std::int64_t next_row_ = 0;
};

}  // namespace garam
