#include "garam/data/sources/arrow/arrow_records.h"

#include <arrow/io/interfaces.h>
#include <arrow/ipc/reader.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>

#include <algorithm>

#include "garam/core/error.h"

namespace garam {
namespace {

arrow::ipc::IpcReadOptions read_options(arrow::MemoryPool* memory) {
    arrow::ipc::IpcReadOptions options = arrow::ipc::IpcReadOptions::Defaults();
    options.memory_pool = memory;
    // Other writers' buffers may lie at any byte.
    options.ensure_alignment = arrow::ipc::Alignment::kDataTypeSpecificAlignment;
    return options;
}

// A stream that is cut between two batches looks whole otherwise. Old writers have no continuation mark.
bool has_end_mark(const TableFile& file) {
    using namespace std::string_view_literals;
    return file.tail(8) == "\xFF\xFF\xFF\xFF\0\0\0\0"sv ||
           (file.head(4) != "\xFF\xFF\xFF\xFF"sv && file.tail(4) == "\0\0\0\0"sv);
}

}  // namespace

struct ArrowRecords::Readers {
    std::shared_ptr<arrow::RecordBatchReader> stream;
    std::shared_ptr<arrow::ipc::RecordBatchFileReader> file;
    std::shared_ptr<arrow::Schema> schema;
};

ArrowRecords::ArrowRecords(const DataFile& file, const std::vector<std::string>& only)
    : file_(file.path), readers_(std::make_unique<Readers>()) {
    try {
        if (file_.head(4) == "FEA1")
            throw Error(file_.name() + ": is of Feather's first version, which is not read");
        arrow::ipc::IpcReadOptions options = read_options(file_.memory());
        const auto open = [&] {
            if (file_.head(6) == "ARROW1") {
                readers_->file =
                    file_.take(arrow::ipc::RecordBatchFileReader::Open(file_.stream(), options));
                readers_->schema = readers_->file->schema();
            } else {
                readers_->stream =
                    file_.take(arrow::ipc::RecordBatchStreamReader::Open(file_.stream(), options));
                readers_->schema = readers_->stream->schema();
            }
        };
        open();
        if (!only.empty()) {
            for (int i = 0; i < readers_->schema->num_fields(); ++i)
                if (std::find(only.begin(), only.end(), readers_->schema->field(i)->name()) !=
                    only.end())
                    options.included_fields.push_back(i);
            // An empty list would mean all of them.
            if (options.included_fields.empty() && readers_->schema->num_fields() > 0)
                throw Error(file_.name() + ": has none of the columns asked for (" + only[0] +
                            ", …)");
            open();
        }
        columns_ = std::make_shared<TableColumns>(file_.name(), file.format, *readers_->schema,
                                                  file.features);
    } catch (const Error&) {
        throw;
    } catch (const std::exception& error) {
        file_.fail(error);
    }
}

ArrowRecords::~ArrowRecords() = default;

std::shared_ptr<arrow::RecordBatch> ArrowRecords::next() {
    try {
        std::shared_ptr<arrow::RecordBatch> batch;
        if (readers_->stream != nullptr) {
            file_.check(readers_->stream->ReadNext(&batch));
            if (batch == nullptr && !has_end_mark(file_))
                throw Error(file_.name() + ": ends without its end mark: it is truncated");
        } else if (at_ < readers_->file->num_record_batches()) {
            batch = file_.take(readers_->file->ReadRecordBatch(at_++));
        }
        return batch;
    } catch (const Error&) {
        throw;
    } catch (const std::exception& error) {
        file_.fail(error);
    }
}

std::int64_t ArrowRecords::count() {
    std::int64_t rows = 0;
    while (const std::shared_ptr<arrow::RecordBatch> batch = next())
        rows += batch->num_rows();
    return rows;
}

}  // namespace garam
