#include "garam/data/sources/row_source.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <set>

#include "garam/core/error.h"
#include "garam/data/sources/byte_source.h"
#include "garam/data/sources/data_files.h"
#include "garam/data/sources/file_rows.h"
#include "garam/data/sources/split_slice.h"

namespace garam {
namespace {

constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();

class SlicedBatch : public RowBatch {
  public:
    SlicedBatch(std::unique_ptr<RowBatch> batch, std::int64_t begin, std::int64_t count)
        : batch_(std::move(batch)), begin_(begin), count_(count) {}
    std::int64_t size() const override { return count_; }
    Json row(std::int64_t i) const override { return batch_->row(begin_ + i); }
    std::string where(std::int64_t i) const override { return batch_->where(begin_ + i); }

  private:
    std::unique_ptr<RowBatch> batch_;
    std::int64_t begin_;
    std::int64_t count_;
};

// Small batches end to end, as many files of few rows give them.
class JoinedBatch : public RowBatch {
  public:
    explicit JoinedBatch(std::vector<std::unique_ptr<RowBatch>> parts) : parts_(std::move(parts)) {
        for (const auto& part : parts_)
            ends_.push_back(size() + part->size());
    }
    std::int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
    Json row(std::int64_t i) const override {
        const std::size_t part = part_of(i);
        return parts_[part]->row(i - begin(part));
    }
    std::string where(std::int64_t i) const override {
        const std::size_t part = part_of(i);
        return parts_[part]->where(i - begin(part));
    }

  private:
    std::size_t part_of(std::int64_t i) const {
        return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), i) -
                                        ends_.begin());
    }
    std::int64_t begin(std::size_t part) const { return part == 0 ? 0 : ends_[part - 1]; }

    std::vector<std::unique_ptr<RowBatch>> parts_;
    std::vector<std::int64_t> ends_;
};

// Rows of files one after the other; one is open at a time.
class RowsOfFiles {
  public:
    RowsOfFiles(std::vector<DataFile> files, const RowSourceOptions& options)
        : files_(std::move(files)), options_(options) {}

    ReadRows next() {
        for (; at_ < files_.size(); ++at_) {
            if (open_ == nullptr) open_ = open_file(files_[at_], options_);
            ReadRows rows = open_->next();
            if (rows.batch != nullptr) return rows;
            open_.reset();
        }
        return {};
    }
    // Of the file that next() reads, or would begin with.
    const RowSchema& schema() {
        if (open_ == nullptr) open_ = open_file(files_[at_], options_);
        return open_->schema();
    }

  private:
    std::vector<DataFile> files_;
    RowSourceOptions options_;
    std::size_t at_ = 0;
    std::unique_ptr<FileRows> open_;
};

std::int64_t count_rows(const std::vector<DataFile>& files, const RowSourceOptions& options) {
    std::int64_t count = 0;
    for (const DataFile& file : files) {
        const std::unique_ptr<FileRows> rows = open_file(file, options);
        if (const std::optional<std::int64_t> known = rows->count()) {
            count += *known;
            continue;
        }
        for (ReadRows read = rows->next(); read.batch != nullptr; read = rows->next())
            count += read.batch->size();
    }
    return count;
}

struct Section {
    std::vector<DataFile> files;
    RowRange range;
};

class FilesSource : public RowSource {
  public:
    FilesSource(std::vector<Section> sections, const RowSourceOptions& options,
                std::string unknown_files)
        : sections_(std::move(sections)), options_(options) {
        std::set<std::filesystem::path> seen;
        const auto add = [&](const std::filesystem::path& file) {
            if (seen.insert(file).second) files_.push_back(file);
        };
        for (const Section& section : sections_) {
            for (const DataFile& file : section.files) {
                if (file.tables.empty()) add(file.path);
                for (const auto& table : file.tables)
                    add(table);
                for (const auto& indices : file.indices)
                    add(indices);
            }
        }
        rows_ = std::make_unique<RowsOfFiles>(sections_.front().files, options_);
        schema_ = rows_->schema();
        schema_.unknown_files = std::move(unknown_files);
        for (const Section& section : sections_)
            for (const DataFile& file : section.files)
                add_bytes(file);
    }
    const RowSchema& schema() const override { return schema_; }
    const std::vector<std::filesystem::path>& files() const override { return files_; }

    std::unique_ptr<RowBatch> next() override {
        if (failure_) std::rethrow_exception(failure_);
        // Batches of this size are handed on as they are.
        constexpr std::int64_t kFewRows = 512;
        constexpr std::size_t kFewBytes = std::size_t{4} << 20;
        std::vector<std::unique_ptr<RowBatch>> parts;
        std::int64_t count = 0;
        std::size_t bytes = 0;
        try {
            while (count < kFewRows && bytes < kFewBytes) {
                ReadRows rows = next_rows();
                if (rows.batch == nullptr) break;
                count += rows.batch->size();
                bytes += rows.bytes;
                bytes_read_ += rows.bytes;
                parts.push_back(std::move(rows.batch));
            }
        } catch (const Error&) {
            failure_ = std::current_exception();
            if (parts.empty()) throw;  // else with the next call: the rows before it are good
        }
        if (parts.empty()) return nullptr;
        if (parts.size() == 1) return std::move(parts.front());
        return std::make_unique<JoinedBatch>(std::move(parts));
    }

    double part_read() const override {
        if (total_bytes_ <= 0) return -1;
        return std::min(1.0, static_cast<double>(bytes_read_) / total_bytes_);
    }

  private:
    // What a batch says that it holds compares with the file's size where that is not packed.
    void add_bytes(const DataFile& file) {
        if (file.format == "parquet" || without_packing(file.path) != file.path ||
            total_bytes_ < 0) {
            total_bytes_ = -1;
            return;
        }
        std::error_code ignored;
        const std::uintmax_t size = std::filesystem::file_size(file.path, ignored);
        if (!ignored) total_bytes_ += static_cast<double>(size);
    }

    // Of the sections, cut to their ranges.
    ReadRows next_rows() {
        while (at_ < sections_.size()) {
            const RowRange range = sections_[at_].range;
            ReadRows rows;
            if (row_ < range.end) {
                if (rows_ == nullptr)
                    rows_ = std::make_unique<RowsOfFiles>(sections_[at_].files, options_);
                rows = rows_->next();
            }
            if (rows.batch == nullptr) {
                rows_.reset();
                row_ = 0;
                ++at_;
                continue;
            }
            const std::int64_t size = rows.batch->size();
            const std::int64_t begin = std::max<std::int64_t>(range.begin - row_, 0);
            const std::int64_t end = std::min(range.end - row_, size);
            row_ += size;
            if (begin >= end) continue;
            if (begin > 0 || end < size)
                rows.batch =
                    std::make_unique<SlicedBatch>(std::move(rows.batch), begin, end - begin);
            return rows;
        }
        return {};
    }

    std::vector<Section> sections_;
    RowSourceOptions options_;
    RowSchema schema_;
    std::vector<std::filesystem::path> files_;
    std::size_t at_ = 0;
    std::int64_t row_ = 0;  // of the section, that comes next
    std::unique_ptr<RowsOfFiles> rows_;
    std::exception_ptr failure_;
    double total_bytes_ = 0;  // below 0: not known
    std::atomic<std::size_t> bytes_read_ = 0;
};

class ColumnsBatch : public RowBatch {
  public:
    ColumnsBatch(std::shared_ptr<const std::vector<std::string>> names,
                 std::vector<std::shared_ptr<const RowBatch>> columns,
                 std::vector<std::int64_t> begins, std::int64_t count)
        : names_(std::move(names)),
          columns_(std::move(columns)),
          begins_(std::move(begins)),
          count_(count) {}
    std::int64_t size() const override { return count_; }
    Json row(std::int64_t i) const override {
        Json::Object object;
        for (std::size_t c = 0; c < columns_.size(); ++c) {
            Json row = columns_[c]->row(begins_[c] + i);
            object.emplace_back((*names_)[c], row.at("text"));
        }
        return Json(std::move(object));
    }
    std::string where(std::int64_t i) const override { return columns_[0]->where(begins_[0] + i); }

  private:
    std::shared_ptr<const std::vector<std::string>> names_;
    std::vector<std::shared_ptr<const RowBatch>> columns_;
    std::vector<std::int64_t> begins_;
    std::int64_t count_;
};

class ColumnsSource : public RowSource {
  public:
    ColumnsSource(std::vector<std::unique_ptr<RowSource>> sources,
                  const std::vector<std::string>& paths, const std::vector<std::string>& names)
        : paths_(paths), names_(std::make_shared<std::vector<std::string>>(names)) {
        schema_.format = "text";
        for (const std::string& name : names)
            schema_.columns.push_back({name, "string", {}});
        for (auto& source : sources) {
            files_.insert(files_.end(), source->files().begin(), source->files().end());
            columns_.push_back({std::move(source), nullptr, 0});
        }
    }
    const RowSchema& schema() const override { return schema_; }
    const std::vector<std::filesystem::path>& files() const override { return files_; }

    std::unique_ptr<RowBatch> next() override {
        std::int64_t count = kAll;
        for (std::size_t c = 0; c < columns_.size(); ++c) {
            Column& column = columns_[c];
            if (column.batch == nullptr || column.begin == column.batch->size()) {
                column.batch = column.source->next();
                column.begin = 0;
            }
            if ((column.batch == nullptr) != (columns_[0].batch == nullptr)) {
                const std::size_t ended = column.batch == nullptr ? c : 0;
                throw Error(paths_[ended] + ": ends after " + std::to_string(row_) +
                            " lines, before " + paths_[ended == 0 ? c : 0] +
                            ": the files of data.zip have as many lines each");
            }
            if (column.batch != nullptr)
                count = std::min(count, column.batch->size() - column.begin);
        }
        if (columns_[0].batch == nullptr) return nullptr;
        std::vector<std::shared_ptr<const RowBatch>> batches;
        std::vector<std::int64_t> begins;
        for (Column& column : columns_) {
            batches.push_back(column.batch);
            begins.push_back(column.begin);
            column.begin += count;
        }
        row_ += count;
        return std::make_unique<ColumnsBatch>(names_, std::move(batches), std::move(begins), count);
    }

  private:
    struct Column {
        std::unique_ptr<RowSource> source;
        std::shared_ptr<const RowBatch> batch;
        std::int64_t begin = 0;
    };
    std::vector<std::string> paths_;
    std::shared_ptr<const std::vector<std::string>> names_;
    RowSchema schema_;
    std::vector<std::filesystem::path> files_;
    std::vector<Column> columns_;
    std::int64_t row_ = 0;
};

}  // namespace

std::unique_ptr<FileRows> open_file(const DataFile& file, const RowSourceOptions& options) {
    if (file.format == "jsonl") return open_json_lines(file.path);
    if (file.format == "json") return open_json_document(file.path);
    if (file.format == "csv" || file.format == "tsv") return open_csv(file, options);
    if (file.format == "text") return open_text(file.path, options.text_unit);
    if (file.format == "arrow" || file.format == "parquet") return open_table(file, options);
    throw Error("data.format must be jsonl, json, csv, tsv, text, arrow or parquet, not \"" +
                file.format + "\"");
}

std::unique_ptr<RowSource> open_rows(const std::string& path, const RowSourceOptions& options) {
    const DataPlace place = find_data(path, options.format);
    std::vector<Section> sections;
    for (const SplitSlice& slice : parse_split(options.split)) {
        const DataSplit& split = place.split(slice.split);
        RowRange range{slice.from.value_or(0), slice.to.value_or(kAll)};
        if (slice.needs_count()) range = resolve(slice, count_rows(split.files, options));
        sections.push_back({split.files, range});
    }
    return std::make_unique<FilesSource>(std::move(sections), options, place.unknown);
}

std::unique_ptr<RowSource> open_columns(const std::vector<std::string>& paths,
                                        const std::vector<std::string>& names,
                                        const RowSourceOptions& options) {
    if (paths.empty() || paths.size() != names.size()) {
        throw Error("data.zip names " + std::to_string(names.size()) + " columns for " +
                    std::to_string(paths.size()) + " files");
    }
    if (std::set<std::string>(names.begin(), names.end()).size() != names.size())
        throw Error("data.zip names a column twice");
    RowSourceOptions as_text = options;
    as_text.format = "text";
    as_text.text_unit = "line";
    std::vector<std::unique_ptr<RowSource>> sources;
    for (const std::string& path : paths)
        sources.push_back(open_rows(path, as_text));
    return std::make_unique<ColumnsSource>(std::move(sources), paths, names);
}

}  // namespace garam
