#include "garam/data/sources/csv_parser.h"

#include <algorithm>
#include <cstring>

#include "garam/core/error.h"
#include "garam/data/sources/file_rows.h"

namespace garam {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 18;

class HeadBytes : public ByteSource {
  public:
    explicit HeadBytes(std::string_view text) : text_(text) {}
    std::size_t read(char* out, std::size_t size) override {
        const std::size_t count = std::min(size, text_.size());
        std::memcpy(out, text_.data(), count);
        text_.remove_prefix(count);
        return count;
    }

  private:
    std::string_view text_;
};

}  // namespace

CsvParser::CsvParser(std::string name, std::unique_ptr<ByteSource> bytes, CsvDialect dialect)
    : name_(std::move(name)), bytes_(std::move(bytes)), dialect_(dialect), buffer_(kBufferBytes) {
    while (end_ < 3) {
        const std::size_t got = bytes_->read(buffer_.data() + end_, buffer_.size() - end_);
        if (got == 0) break;
        end_ += got;
    }
    begin_ = byte_order_mark({buffer_.data(), end_}, name_);
}

int CsvParser::peek() {
    if (begin_ == end_) {
        begin_ = 0;
        end_ = read_bytes(*bytes_, buffer_.data(), buffer_.size(), line_);
        if (end_ == 0) return kEnd;
    }
    return static_cast<unsigned char>(buffer_[begin_]);
}

void CsvParser::check_size(const CsvRecords& records) const {
    if (records.text_.size() - record_begin_ <= kMaxRowBytes) return;
    throw Error(name_ + ":" + std::to_string(record_line_) + ": the row is longer than " +
                std::to_string(kMaxRowBytes >> 20) + " MiB (a quote that nothing closes?)");
}

// Up to the next of the two, which stays.
void CsvParser::append_until(std::string& text, char a, char b) {
    while (peek() != kEnd) {
        const char* const from = buffer_.data() + begin_;
        const char* const end = buffer_.data() + end_;
        const char* at = from;
        while (at != end && *at != a && *at != b)
            ++at;
        text.append(from, static_cast<std::size_t>(at - from));
        begin_ += static_cast<std::size_t>(at - from);
        if (at != end) return;
        if (text.size() - record_begin_ > kMaxRowBytes) return;
    }
}

// From behind the opening quote behind the closing one.
void CsvParser::read_quoted(CsvRecords& records) {
    const std::int64_t line = line_;
    std::string& text = records.text_;
    for (;;) {
        const std::size_t from = text.size();
        append_until(text, dialect_.quote, dialect_.quote);
        check_size(records);
        line_ += std::count(text.begin() + static_cast<std::ptrdiff_t>(from), text.end(), '\n');
        if (peek() == kEnd) {
            throw Error(name_ + ":" + std::to_string(line) +
                        ": nothing closes the quote that begins on this line (data.csv_quote: \"\" "
                        "takes quotes as they are)");
        }
        ++begin_;
        if (peek() != static_cast<unsigned char>(dialect_.quote)) return;
        text += dialect_.quote;
        ++begin_;
    }
}

bool CsvParser::append_next(CsvRecords& records) {
    for (;;) {  // blank lines
        const int c = peek();
        if (c == kEnd) return false;
        if (c != '\n' && c != '\r') break;
        if (c == '\r') {
            // One that no newline follows begins a field.
            if (begin_ + 1 == end_) {
                buffer_[0] = '\r';
                begin_ = 0;
                end_ = 1 + read_bytes(*bytes_, buffer_.data() + 1, buffer_.size() - 1, line_);
            }
            if (begin_ + 1 < end_ && buffer_[begin_ + 1] != '\n') break;
            ++begin_;
            if (begin_ == end_) return false;
        }
        ++begin_;
        ++line_;
    }
    record_line_ = line_;
    std::string& text = records.text_;
    record_begin_ = text.size();
    for (;;) {
        bool is_quoted = false;
        if (dialect_.quote != '\0' && peek() == static_cast<unsigned char>(dialect_.quote)) {
            ++begin_;
            read_quoted(records);
            is_quoted = true;
        }
        // What stands behind a closing quote belongs to the field.
        const std::size_t tail = text.size();
        append_until(text, dialect_.delimiter, '\n');
        check_size(records);
        const int c = peek();
        const bool is_delimiter = c == static_cast<unsigned char>(dialect_.delimiter);
        if (!is_delimiter && text.size() > tail && text.back() == '\r') text.pop_back();
        records.field_ends_.push_back(text.size());
        records.is_quoted_.push_back(is_quoted);
        if (c != kEnd) ++begin_;
        if (is_delimiter) continue;
        if (c == '\n') ++line_;
        break;
    }
    records.record_ends_.push_back(records.field_ends_.size());
    records.lines_.push_back(record_line_);
    return true;
}

char find_csv_delimiter(std::string_view head, bool is_cut, char quote) {
    constexpr std::int64_t kLooked = 20;
    char best = ',';
    double best_share = 0;
    std::size_t best_fields = 1;
    for (const char delimiter : {',', '\t', ';', '|'}) {
        CsvRecords records;
        try {
            CsvParser parser("", std::make_unique<HeadBytes>(head), {delimiter, quote});
            while (records.size() < kLooked && parser.append_next(records)) {
            }
        } catch (const Error&) {
            if (!is_cut) continue;
        }
        // The last record may be cut.
        const std::int64_t count = records.size() - (is_cut && records.size() < kLooked ? 1 : 0);
        if (count < 1 || records.fields(0) < 2) continue;
        std::int64_t even = 0;
        for (std::int64_t i = 0; i < count; ++i)
            even += records.fields(i) == records.fields(0);
        const double share = static_cast<double>(even) / static_cast<double>(count);
        if (share < best_share || (share == best_share && records.fields(0) <= best_fields))
            continue;
        best = delimiter;
        best_share = share;
        best_fields = records.fields(0);
    }
    return best;
}

}  // namespace garam
