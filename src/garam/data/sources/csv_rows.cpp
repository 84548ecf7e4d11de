// Separated values: a row a record; all values are texts, null where nothing stands between two delimiters.
#include <set>

#include "garam/core/error.h"
#include "garam/data/sources/csv_parser.h"
#include "garam/data/sources/file_rows.h"
#include "garam/data/sources/line_reader.h"

namespace garam {
namespace {

using Names = std::vector<std::string>;

class CsvBatch : public RowBatch {
  public:
    CsvBatch(std::string file, std::shared_ptr<const Names> names, CsvRecords records)
        : file_(std::move(file)), names_(std::move(names)), records_(std::move(records)) {}
    std::int64_t size() const override { return records_.size(); }
    Json row(std::int64_t i) const override {
        const std::size_t fields = records_.fields(i);
        if (fields != names_->size()) {
            throw Error(where(i) + ": has " + std::to_string(fields) + " fields where there are " +
                        std::to_string(names_->size()) + " columns");
        }
        Json::Object object;
        object.reserve(fields);
        for (std::size_t c = 0; c < fields; ++c) {
            if (records_.is_missing(i, c)) {
                object.emplace_back((*names_)[c], Json());
                continue;
            }
            check_utf8(records_.field(i, c), where(i));
            object.emplace_back((*names_)[c], records_.field(i, c));
        }
        return Json(std::move(object));
    }
    std::string where(std::int64_t i) const override {
        return file_ + ":" + std::to_string(records_.line(i));
    }

  private:
    std::string file_;
    std::shared_ptr<const Names> names_;
    CsvRecords records_;
};

class CsvRows : public FileRows {
  public:
    CsvRows(const DataFile& file, const RowSourceOptions& options)
        : name_(file.path.string()), parser_(open(file, options)) {
        schema_.format = file.format;
        auto names = std::make_shared<Names>(options.csv_columns);
        const bool has_head = options.csv_header.value_or(names->empty());
        const bool any = parser_.append_next(first_);
        if (!any && (has_head || names->empty())) throw Error(name_ + ": is empty");
        if (has_head) {
            Names head = fields(first_);
            if (names->empty()) *names = std::move(head);
            first_ = {};
        } else if (names->empty()) {
            for (std::size_t i = 0; i < first_.fields(0); ++i)
                names->push_back(std::to_string(i));
        }
        std::set<std::string> seen;
        for (const std::string& name : *names) {
            if (!seen.insert(name).second)
                throw Error(name_ + ": two columns are called \"" + name +
                            "\" (data.csv_header: false, if the first line is no head)");
            schema_.columns.push_back({name, "string", {}});
        }
        names_ = std::move(names);
    }
    const RowSchema& schema() const override { return schema_; }
    ReadRows next() override {
        CsvRecords records = std::move(first_);
        first_ = {};
        while (records.size() < kBatchRows && records.bytes() < kBatchBytes &&
               parser_.append_next(records)) {
        }
        if (records.size() == 0) return {};
        const std::size_t bytes = records.bytes();
        return {std::make_unique<CsvBatch>(name_, names_, std::move(records)), bytes};
    }

  private:
    static CsvParser open(const DataFile& file, const RowSourceOptions& options) {
        CsvDialect dialect;
        dialect.quote = options.csv_quote.value_or('"');
        if (options.csv_delimiter) {
            dialect.delimiter = *options.csv_delimiter;
        } else if (file.format == "tsv") {
            dialect.delimiter = '\t';
        } else {
            constexpr std::size_t kHead = std::size_t{1} << 16;
            const std::unique_ptr<ByteSource> bytes = open_bytes(file.path);
            std::string head(kHead, '\0');
            std::size_t filled = 0;
            while (filled < kHead) {
                const std::size_t got = bytes->read(head.data() + filled, kHead - filled);
                if (got == 0) break;
                filled += got;
            }
            head.resize(filled);
            dialect.delimiter = find_csv_delimiter(head, filled == kHead, dialect.quote);
        }
        if (dialect.delimiter == '\n' || dialect.delimiter == '\r' ||
            dialect.delimiter == dialect.quote)
            throw Error(
                "data.csv_delimiter must be another character than the quote or the end of "
                "a line");
        return CsvParser(file.path.string(), open_bytes(file.path), dialect);
    }
    Names fields(const CsvRecords& records) const {
        Names names;
        for (std::size_t i = 0; i < records.fields(0); ++i) {
            check_utf8(records.field(0, i), name_ + ":1");
            names.emplace_back(records.field(0, i));
        }
        return names;
    }

    std::string name_;
    CsvParser parser_;
    CsvRecords first_;  // a row read while looking for the head
    std::shared_ptr<const Names> names_;
    RowSchema schema_;
};

}  // namespace

std::unique_ptr<FileRows> open_csv(const DataFile& file, const RowSourceOptions& options) {
    return std::make_unique<CsvRows>(file, options);
}

}  // namespace garam
