// The record batches of an Arrow file, in the stream format or the file format.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "garam/data/sources/arrow/table_batches.h"
#include "garam/data/sources/arrow/table_file.h"

namespace garam {

class ArrowRecords {
  public:
    // `only`: names of columns; empty: all.
    ArrowRecords(const DataFile& file, const std::vector<std::string>& only);
    ~ArrowRecords();

    std::shared_ptr<const TableColumns> columns() const { return columns_; }
    // Null at the end.
    std::shared_ptr<arrow::RecordBatch> next();
    std::int64_t count();
    TableFile& file() { return file_; }

  private:
    struct Readers;
    TableFile file_;
    std::unique_ptr<Readers> readers_;
    std::shared_ptr<const TableColumns> columns_;
    int at_ = 0;
};

}  // namespace garam
