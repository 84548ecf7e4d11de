// The rows of one file, of whatever format. row_source.cpp joins files and cuts slices out of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "garam/data/sources/row_source.h"

namespace garam {

// What a batch should hold: enough rows to keep every core busy, few enough bytes that files larger than
// memory stream.
constexpr std::int64_t kBatchRows = 4096;
constexpr std::size_t kBatchBytes = std::size_t{16} << 20;
// A line, field or document beyond this is refused.
constexpr std::size_t kMaxRowBytes = std::size_t{1} << 30;

struct ReadRows {
    std::unique_ptr<RowBatch> batch;  // null at the end, else of at least one row
    std::size_t bytes = 0;            // that it holds, about
};

class FileRows {
  public:
    virtual ~FileRows() = default;
    virtual ReadRows next() = 0;
    virtual const RowSchema& schema() const = 0;
    // The number of rows, where the file tells it without being read. Of a reader that has not begun.
    virtual std::optional<std::int64_t> count() { return std::nullopt; }
};

struct DataFile {
    std::filesystem::path path;
    std::string format;    // as in RowSchema
    std::string features;  // JSON of `datasets`' features, where a folder tells them
    // Of a folder whose rows are a selection: all its data files, and the files of row numbers. `path` is
    // the folder then.
    std::vector<std::filesystem::path> tables;
    std::vector<std::filesystem::path> indices;
};

std::unique_ptr<FileRows> open_file(const DataFile& file, const RowSourceOptions& options);

// One for each format; open_file() chooses.
std::unique_ptr<FileRows> open_json_lines(const std::filesystem::path& path);
std::unique_ptr<FileRows> open_json_document(const std::filesystem::path& path);
std::unique_ptr<FileRows> open_csv(const DataFile& file, const RowSourceOptions& options);
std::unique_ptr<FileRows> open_text(const std::filesystem::path& path, const std::string& unit);
std::unique_ptr<FileRows> open_table(const DataFile& file, const RowSourceOptions& options);

}  // namespace garam
