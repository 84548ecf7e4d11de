// Records of separated values (RFC 4180) out of a byte stream.
//
// A field in quotes may hold delimiters, newlines and doubled quotes; a quote within a field that does not begin
// with one is a character like any other. Lines end in LF or CRLF; blank ones are passed over.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "garam/data/sources/byte_source.h"

namespace garam {

struct CsvDialect {
    char delimiter = ',';
    char quote = '"';  // '\0': none
};

// Fields of records in one piece of memory.
class CsvRecords {
  public:
    std::int64_t size() const { return static_cast<std::int64_t>(record_ends_.size()); }
    std::size_t bytes() const { return text_.size(); }
    std::int64_t line(std::int64_t record) const {
        return lines_[static_cast<std::size_t>(record)];
    }
    std::size_t fields(std::int64_t record) const {
        return record_ends_[static_cast<std::size_t>(record)] - first_field(record);
    }
    std::string_view field(std::int64_t record, std::size_t i) const {
        const std::size_t at = first_field(record) + i;
        const std::size_t begin = at == 0 ? 0 : field_ends_[at - 1];
        return std::string_view(text_).substr(begin, field_ends_[at] - begin);
    }
    // Nothing between two delimiters; "" in quotes is an empty text.
    bool is_missing(std::int64_t record, std::size_t i) const {
        const std::size_t at = first_field(record) + i;
        return !is_quoted_[at] && field(record, i).empty();
    }

  private:
    friend class CsvParser;
    std::size_t first_field(std::int64_t record) const {
        return record == 0 ? 0 : record_ends_[static_cast<std::size_t>(record) - 1];
    }

    std::string text_;
    std::vector<std::size_t> field_ends_;
    std::vector<bool> is_quoted_;
    std::vector<std::size_t> record_ends_;
    std::vector<std::int64_t> lines_;  // on which each begins, from 1
};

class CsvParser {
  public:
    // `name` is what messages call the file.
    CsvParser(std::string name, std::unique_ptr<ByteSource> bytes, CsvDialect dialect);
    // Appends a record; false at the end. Throws Error "<name>:<line>: ..." for a quote that nothing closes
    // and a record beyond kMaxRowBytes.
    bool append_next(CsvRecords& records);

  private:
    static constexpr int kEnd = -1;
    int peek();
    void append_until(std::string& text, char a, char b);
    void read_quoted(CsvRecords& records);
    void check_size(const CsvRecords& records) const;

    std::string name_;
    std::unique_ptr<ByteSource> bytes_;
    CsvDialect dialect_;
    std::vector<char> buffer_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
    std::int64_t line_ = 1;
    std::int64_t record_line_ = 1;
    std::size_t record_begin_ = 0;
};

// The delimiter among , ; tab | that cuts the head of a file into the most even records of several fields; a
// comma where none does. `is_cut`: the head is not the whole file.
char find_csv_delimiter(std::string_view head, bool is_cut, char quote);

}  // namespace garam
