#include "garam/data/sources/arrow/table_batches.h"

#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <arrow/util/byte_size.h>
#include <arrow/util/key_value_metadata.h>

#include <algorithm>

#include "garam/core/error.h"

namespace garam {
namespace {

// What a row may take of memory: packed bits give 40 bytes each, and a dictionary's texts are there many times.
constexpr std::size_t kSmallRow = std::size_t{64} << 20;
constexpr std::size_t kRowPerByte = 400;

// Out of {"info": {"features": {...}}}, which `datasets` writes into every table.
Json features_of(const arrow::Schema& schema) {
    const auto& metadata = schema.metadata();
    const int at = metadata == nullptr ? -1 : metadata->FindKey("huggingface");
    if (at < 0) return {};
    try {
        const Json whole = Json::parse(metadata->value(at), "huggingface");
        const Json* info = whole.find("info");
        const Json* features = info != nullptr ? info->find("features") : nullptr;
        return features != nullptr ? *features : Json();
    } catch (const Error&) {
        return {};  // another program's key of that name
    }
}

class TableBatch : public RowBatch {
  public:
    TableBatch(std::shared_ptr<const TableValues> values, std::int64_t begin, std::int64_t count)
        : values_(std::move(values)), begin_(begin), count_(count) {}
    std::int64_t size() const override { return count_; }
    Json row(std::int64_t i) const override { return values_->row(begin_ + i); }
    std::string where(std::int64_t i) const override { return values_->where(begin_ + i); }

  private:
    std::shared_ptr<const TableValues> values_;
    std::int64_t begin_;
    std::int64_t count_;
};

}  // namespace

TableColumns::TableColumns(std::string file, const std::string& format, const arrow::Schema& schema,
                           const std::string& features)
    : file_(std::move(file)) {
    const Json all =
        features.empty() ? features_of(schema) : Json::parse(features, file_ + ": features");
    schema_.format = format;
    for (const auto& field : schema.fields()) {
        const Json* feature = all.find(field->name());
        features_.push_back(feature != nullptr ? *feature : Json());
        schema_.columns.push_back(
            {field->name(), type_name(*field->type()), class_names(features_.back())});
        const std::string refusal = refusal_of(*field->type());
        if (!refusal.empty() && refusal_.empty())
            refusal_ = file_ + ": column \"" + field->name() + "\" " + refusal;
    }
}

void TableColumns::check_types() const {
    if (!refusal_.empty()) throw Error(refusal_);
}

TableValues::TableValues(std::shared_ptr<const TableColumns> columns,
                         const std::shared_ptr<arrow::RecordBatch>& batch, std::int64_t first_row)
    : columns_(std::move(columns)), size_(batch->num_rows()), bytes_(0), first_row_(first_row) {
    const arrow::Status status = batch->Validate();
    if (!status.ok()) throw Error(columns_->file() + ": is corrupt: " + status.message());
    if (static_cast<std::size_t>(batch->num_columns()) != columns_->schema().columns.size())
        throw Error(columns_->file() + ": is corrupt: a batch has other columns than the file");
    bytes_ =
        static_cast<std::size_t>(std::max<std::int64_t>(arrow::util::TotalBufferSize(*batch), 0));
    for (int i = 0; i < batch->num_columns(); ++i) {
        try {
            values_.push_back(
                read_values(batch->column(i), columns_->feature(static_cast<std::size_t>(i))));
        } catch (const Error& error) {
            throw Error(columns_->file() + ": column \"" + batch->column_name(i) + "\" " +
                        error.what());
        }
    }
}

Json TableValues::row(std::int64_t i) const {
    RowBudget budget(bytes_ < kMaxRowBytes / kRowPerByte
                         ? std::min(kMaxRowBytes, kSmallRow + bytes_ * kRowPerByte)
                         : kMaxRowBytes);
    Json::Object object;
    object.reserve(values_.size());
    const std::vector<ColumnSchema>& columns = columns_->schema().columns;
    for (std::size_t c = 0; c < values_.size(); ++c) {
        try {
            object.emplace_back(columns[c].name, values_[c]->value(i, budget));
        } catch (const Error& error) {
            throw Error(where(i) + ": column \"" + columns[c].name + "\" " + error.what());
        }
    }
    return Json(std::move(object));
}

std::string TableValues::where(std::int64_t i) const {
    return columns_->file() + ", row " + std::to_string(first_row_ + i);
}

void TableCutter::put(const std::shared_ptr<arrow::RecordBatch>& batch) {
    values_ = std::make_shared<TableValues>(columns_, batch, next_row_);
    next_row_ += values_->size();
    begin_ = 0;
    const std::int64_t rows = std::max<std::int64_t>(values_->size(), 1);
    const auto row_bytes = static_cast<std::int64_t>(values_->bytes()) / rows + 1;
    step_ =
        std::clamp<std::int64_t>(static_cast<std::int64_t>(kBatchBytes) / row_bytes, 1, kBatchRows);
}

ReadRows TableCutter::take() {
    if (values_ == nullptr || begin_ == values_->size()) return {};
    const std::int64_t count = std::min(step_, values_->size() - begin_);
    const auto bytes =
        static_cast<std::size_t>(static_cast<double>(values_->bytes()) *
                                 static_cast<double>(count) / static_cast<double>(values_->size()));
    ReadRows rows{std::make_unique<TableBatch>(values_, begin_, count), bytes};
    begin_ += count;
    return rows;
}

}  // namespace garam
