#include "garam/data/sources/arrow/arrow_rows.h"

#include <arrow/array.h>
#include <arrow/record_batch.h>

#include <algorithm>

#include "garam/core/error.h"
#include "garam/data/sources/arrow/arrow_records.h"

namespace garam {
namespace {

class ArrowRows : public FileRows {
  public:
    ArrowRows(const DataFile& file, const ColumnNames& only)
        : source_(file), records_(file, only), cutter_(records_.columns()) {}
    const RowSchema& schema() const override { return records_.columns()->schema(); }
    ReadRows next() override {
        records_.columns()->check_types();
        for (;;) {
            ReadRows rows = cutter_.take();
            if (rows.batch != nullptr) {
                records_.file().used(rows.bytes);
                return rows;
            }
            const std::shared_ptr<arrow::RecordBatch> batch = records_.next();
            if (batch == nullptr) return {};
            cutter_.put(batch);
        }
    }
    std::optional<std::int64_t> count() override {
        // One column is enough to know the lengths.
        const std::vector<ColumnSchema>& columns = schema().columns;
        return ArrowRecords(source_, columns.empty() ? ColumnNames{} : ColumnNames{columns[0].name})
            .count();
    }

  private:
    DataFile source_;
    ArrowRecords records_;
    TableCutter cutter_;
};

// The tables of a selection, and which rows of them it takes.
struct Tables {
    std::vector<TableValues> parts;
    std::vector<std::int64_t> ends;

    std::pair<const TableValues*, std::int64_t> find(std::int64_t row) const {
        const auto part = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), row) -
                                                   ends.begin());
        return {&parts[part], part == 0 ? row : row - ends[part - 1]};
    }
};

class SelectedBatch : public RowBatch {
  public:
    SelectedBatch(std::shared_ptr<const Tables> tables, std::vector<std::int64_t> rows)
        : tables_(std::move(tables)), rows_(std::move(rows)) {}
    std::int64_t size() const override { return static_cast<std::int64_t>(rows_.size()); }
    Json row(std::int64_t i) const override {
        const auto [values, row] = tables_->find(rows_[static_cast<std::size_t>(i)]);
        return values->row(row);
    }
    std::string where(std::int64_t i) const override {
        const auto [values, row] = tables_->find(rows_[static_cast<std::size_t>(i)]);
        return values->where(row);
    }

  private:
    std::shared_ptr<const Tables> tables_;
    std::vector<std::int64_t> rows_;
};

// The tables stay mapped; in memory is only their order, eight bytes a row.
class SelectedRows : public FileRows {
  public:
    SelectedRows(const DataFile& file, const ColumnNames& only) {
        auto tables = std::make_shared<Tables>();
        std::int64_t rows = 0;
        for (const std::filesystem::path& path : file.tables) {
            ArrowRecords records({path, file.format, file.features}, only);
            if (columns_ == nullptr) columns_ = records.columns();
            std::int64_t first = 0;
            while (const std::shared_ptr<arrow::RecordBatch> batch = records.next()) {
                records.columns()->check_types();
                if (batch->num_rows() == 0) continue;
                tables->parts.emplace_back(records.columns(), batch, first);
                first += batch->num_rows();
                rows += batch->num_rows();
                tables->ends.push_back(rows);
                bytes_ += tables->parts.back().bytes();
            }
        }
        if (columns_ == nullptr) throw Error(file.path.string() + ": names no data file");
        for (const std::filesystem::path& path : file.indices)
            read_indices({path, file.format, {}}, rows);
        if (rows > 0) bytes_ /= static_cast<std::size_t>(rows);
        tables_ = std::move(tables);
    }
    const RowSchema& schema() const override { return columns_->schema(); }
    ReadRows next() override {
        const auto step = static_cast<std::int64_t>(kBatchBytes / (bytes_ + 1));
        const std::size_t count =
            std::min(static_cast<std::size_t>(std::clamp<std::int64_t>(step, 1, kBatchRows)),
                     rows_.size() - at_);
        if (count == 0) return {};
        const auto begin = rows_.begin() + static_cast<std::ptrdiff_t>(at_);
        std::vector<std::int64_t> rows(begin, begin + static_cast<std::ptrdiff_t>(count));
        at_ += count;
        return {std::make_unique<SelectedBatch>(tables_, std::move(rows)), bytes_ * count};
    }
    std::optional<std::int64_t> count() override { return static_cast<std::int64_t>(rows_.size()); }

  private:
    void read_indices(const DataFile& file, std::int64_t rows) {
        ArrowRecords records(file, {});
        const auto refuse = [&](const std::string& what) {
            throw Error(file.path.string() + ": " + what);
        };
        if (records.columns()->schema().columns.size() != 1)
            refuse("a file of row numbers has one column");
        while (const std::shared_ptr<arrow::RecordBatch> batch = records.next()) {
            const TableValues numbers(records.columns(), batch,
                                      static_cast<std::int64_t>(rows_.size()));
            for (std::int64_t i = 0; i < numbers.size(); ++i) {
                const Json number = std::move(numbers.row(i).object()[0].second);
                if (!number.is_int() || number.integer() < 0 || number.integer() >= rows)
                    refuse("row " + std::to_string(rows_.size()) + " names row " + number.dump() +
                           " of " + std::to_string(rows));
                rows_.push_back(number.integer());
            }
        }
    }

    std::shared_ptr<const TableColumns> columns_;
    std::shared_ptr<const Tables> tables_;
    std::vector<std::int64_t> rows_;
    std::size_t bytes_ = 0;  // of a row
    std::size_t at_ = 0;
};

}  // namespace

std::unique_ptr<FileRows> open_arrow(const DataFile& file, const ColumnNames& only) {
    return std::make_unique<ArrowRows>(file, only);
}

std::unique_ptr<FileRows> open_selection(const DataFile& file, const ColumnNames& only) {
    return std::make_unique<SelectedRows>(file, only);
}

}  // namespace garam
