// The rows of a data set, whatever file they lie in, a batch at a time and in their order.
//
// A source holds no more than a batch in memory, however large the files are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "garam/core/json.h"

namespace garam {

// Consecutive rows. May be used from several threads, and outlives its source.
class RowBatch {
  public:
    virtual ~RowBatch() = default;
    virtual std::int64_t size() const = 0;
    // Row `i` as a JSON object: a member a column, in the columns' order; null where it has no value.
    // Throws Error "<where(i)>: ..." when it cannot be read.
    virtual Json row(std::int64_t i) const = 0;
    // What messages name a row by: "train.jsonl:17" (line from 1, of the file as it is when unpacked),
    // "train-00001-of-00004.parquet, row 17" (from 0).
    virtual std::string where(std::int64_t i) const = 0;
};

struct ColumnSchema {
    std::string name;
    std::string type;  // "string", "int64", "list<struct<role: string, content: string>>"
    // Of a column of class numbers (`datasets`' ClassLabel): the name of each number. Rows hold the names.
    std::vector<std::string> class_names;
};

struct RowSchema {
    std::string format;  // "arrow", "parquet", "jsonl", "json", "csv", "tsv", "text"
    // Of formats that declare them, and of CSV's head; empty where each row has keys of its own.
    std::vector<ColumnSchema> columns;
    // Of a folder: its files that are passed over since their names tell no format, "2 .log, 1 .xlsx".
    std::string unknown_files;
};

class RowSource {
  public:
    virtual ~RowSource() = default;
    // The next rows, at least one; null at the end. Throws Error naming the file and what is wrong with
    // it: nothing behind that point can be read.
    virtual std::unique_ptr<RowBatch> next() = 0;
    virtual const RowSchema& schema() const = 0;
    // How much of its bytes was handed on, about, in [0, 1]; below 0: unknown (packed files, Parquet). May be
    // asked while next() runs on another thread.
    virtual double part_read() const { return -1; }
    // Every file that decides what the rows are, in reading order.
    virtual const std::vector<std::filesystem::path>& files() const = 0;
};

// How a place in the file system is read. Empty or unset: found out from names and contents.
struct RowSourceOptions {
    // Of folders that hold several: "train". With a slice as `datasets` writes it:
    // "train[:90%]", "train[1000:2000]", "[:500]" of what has no splits.
    std::string split;
    std::string format;
    std::optional<char> csv_delimiter;
    std::optional<bool> csv_header;        // unset: true
    std::vector<std::string> csv_columns;  // names, where there is no head
    std::optional<char> csv_quote;         // '"'; '\0': a quote is a character like any other
    std::string text_unit = "line";        // of plain text: "line", "paragraph", "document"
    std::vector<std::string>
        only_columns;  // the others are not read, where a format can leave them out
};

// `path`: a file (possibly .gz or .zst), a folder as `save_to_disk` writes it (Dataset or DatasetDict), a
// folder of data files in the Hub's layout (train-00000-of-00002.parquet, data/train/…, train.csv), a glob
// pattern, or `org/name` as it lies in the local Hugging Face cache. Throws Error naming what was looked for,
// and which splits there are when one has to be named.
std::unique_ptr<RowSource> open_rows(const std::string& path, const RowSourceOptions& options = {});

// Several text files as columns of the same rows, line by line: translation pairs. Throws Error when one has
// fewer lines than another. `names`: as many as `paths`.
std::unique_ptr<RowSource> open_columns(const std::vector<std::string>& paths,
                                        const std::vector<std::string>& names,
                                        const RowSourceOptions& options = {});

}  // namespace garam
