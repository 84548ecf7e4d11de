#include <arrow/io/interfaces.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/schema.h>

#include <algorithm>
#include <cstdint>

#include "garam/core/error.h"
#include "garam/data/sources/arrow/arrow_rows.h"
#include "garam/data/sources/arrow/table_batches.h"
#include "garam/data/sources/arrow/table_file.h"

namespace garam {
namespace {

class ParquetRows : public FileRows {
  public:
    ParquetRows(const DataFile& file, const ColumnNames& only) : file_(file.path) {
        try {
            open(only);
            std::shared_ptr<arrow::Schema> schema = records_->schema();
            columns_ =
                std::make_shared<TableColumns>(file_.name(), file.format, *schema, file.features);
            cutter_ = std::make_unique<TableCutter>(columns_);
        } catch (const Error&) {
            throw;
        } catch (const std::exception& error) {
            file_.fail(error);
        }
    }
    const RowSchema& schema() const override { return columns_->schema(); }
    std::optional<std::int64_t> count() override { return rows_; }

    ReadRows next() override {
        columns_->check_types();
        for (;;) {
            ReadRows rows = cutter_->take();
            if (rows.batch != nullptr) {
                file_.used(rows.bytes);
                return rows;
            }
            std::shared_ptr<arrow::RecordBatch> batch;
            try {
                file_.check(records_->ReadNext(&batch));
            } catch (const Error&) {
                throw;
            } catch (const std::exception& error) {
                file_.fail(error);
            }
            if (batch == nullptr) return {};
            cutter_->put(batch);
        }
    }

  private:
    void open(const ColumnNames& only) {
        parquet::ReaderProperties reading(file_.memory());
        // Lists are made as long as they say before they are read; each of their items takes a byte at least.
        reading.set_thrift_container_size_limit(static_cast<std::int32_t>(std::min(
            static_cast<std::size_t>(reading.thrift_container_size_limit()), file_.size())));
        parquet::arrow::FileReaderBuilder builder;
        file_.check(builder.Open(file_.stream(), reading));
        const std::shared_ptr<parquet::FileMetaData> metadata = builder.raw_reader()->metadata();
        rows_ = metadata->num_rows();
        std::vector<int> leaves;
        for (int i = 0; i < metadata->num_columns(); ++i) {
            const std::string& root = metadata->schema()->GetColumnRoot(i)->name();
            if (only.empty() || std::find(only.begin(), only.end(), root) != only.end())
                leaves.push_back(i);
        }
        if (leaves.empty() && metadata->num_columns() > 0)
            throw Error(file_.name() + ": has none of the columns asked for (" + only[0] + ", …)");

        // Row groups may be as large as the file: they are decoded a batch at a time, and not read ahead.
        std::int64_t row_bytes = 1;
        std::vector<int> groups;
        for (int g = 0; g < metadata->num_row_groups(); ++g) {
            groups.push_back(g);
            const auto group = metadata->RowGroup(g);
            double bytes = 0;
            for (const int leaf : leaves)
                bytes += static_cast<double>(group->ColumnChunk(leaf)->total_uncompressed_size());
            if (group->num_rows() > 0)
                row_bytes =
                    std::max(row_bytes, static_cast<std::int64_t>(std::min(
                                            bytes / static_cast<double>(group->num_rows()), 1e12)));
        }
        parquet::ArrowReaderProperties properties;
        properties.set_batch_size(std::clamp<std::int64_t>(
            static_cast<std::int64_t>(kBatchBytes) / row_bytes, 1, kBatchRows));
        properties.set_pre_buffer(false);
        properties.set_use_threads(true);
        builder.memory_pool(file_.memory());
        builder.properties(properties);
        file_.check(builder.Build(&reader_));
        records_ = file_.take(reader_->GetRecordBatchReader(groups, leaves));
    }

    TableFile file_;
    std::unique_ptr<parquet::arrow::FileReader> reader_;
    std::unique_ptr<arrow::RecordBatchReader> records_;
    std::int64_t rows_ = 0;
    std::shared_ptr<const TableColumns> columns_;
    std::unique_ptr<TableCutter> cutter_;
};

}  // namespace

std::unique_ptr<FileRows> open_parquet(const DataFile& file, const ColumnNames& only) {
    return std::make_unique<ParquetRows>(file, only);
}

}  // namespace garam
