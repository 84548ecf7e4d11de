#include "garam/data/sources/json_splitter.h"

#include <algorithm>
#include <string_view>

#include "garam/core/error.h"
#include "garam/data/sources/file_rows.h"

namespace garam {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 18;

bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// What ends a number or a word.
bool ends_scalar(char c) {
    return is_space(c) || c == ',' || c == ':' || c == ']' || c == '}' || c == '[' || c == '{' ||
           c == '"';
}

}  // namespace

JsonSplitter::JsonSplitter(const std::filesystem::path& path)
    : name_(path.string()), bytes_(open_bytes(path)), buffer_(kBufferBytes) {
    if (!fill()) return;
    // A source may give a byte at a time; the mark is three.
    while (end_ < 3) {
        const std::size_t got = bytes_->read(buffer_.data() + end_, buffer_.size() - end_);
        if (got == 0) break;
        end_ += got;
    }
    begin_ = byte_order_mark({buffer_.data(), end_}, name_);
}

bool JsonSplitter::fill() {
    if (begin_ < end_) return true;
    begin_ = 0;
    end_ = read_bytes(*bytes_, buffer_.data(), buffer_.size(), line_);
    return end_ > 0;
}

void JsonSplitter::fail(const std::string& what) const {
    throw Error(name_ + ":" + std::to_string(line_) + ": not valid JSON: " + what);
}

int JsonSplitter::peek() {
    while (fill()) {
        const char c = buffer_[begin_];
        if (!is_space(c)) return static_cast<unsigned char>(c);
        line_ += c == '\n';
        ++begin_;
    }
    return -1;
}

bool JsonSplitter::take(char c) {
    if (peek() != static_cast<unsigned char>(c)) return false;
    ++begin_;
    return true;
}

// From the opening quote behind the closing one.
void JsonSplitter::scan_text(std::string* out) {
    bool is_escaped = false;
    bool is_first = true;
    for (;;) {
        if (!fill()) fail("the file ends within a text");
        const std::size_t from = begin_;
        bool is_over = false;
        while (begin_ < end_ && !is_over) {
            const char c = buffer_[begin_++];
            line_ += c == '\n';
            if (is_first) {
                is_first = false;
            } else if (is_escaped) {
                is_escaped = false;
            } else if (c == '\\') {
                is_escaped = true;
            } else {
                is_over = c == '"';
            }
        }
        value_bytes_ += begin_ - from;
        if (out != nullptr) {
            if (value_bytes_ > kMaxRowBytes)
                fail("the value is longer than " + std::to_string(kMaxRowBytes >> 20) + " MiB");
            out->append(buffer_.data() + from, begin_ - from);
        }
        if (is_over) return;
    }
}

void JsonSplitter::value(std::string* out) {
    value_bytes_ = 0;
    const int first = peek();
    if (first < 0) fail("the file ends where a value should stand");
    if (first == '"') return scan_text(out);
    if (first != '{' && first != '[') {
        std::size_t taken = 0;
        while (fill() && !ends_scalar(buffer_[begin_])) {
            if (++taken > 100) fail("a value that is no number, text, list or object");
            if (out != nullptr) *out += buffer_[begin_];
            ++begin_;
        }
        if (taken == 0)
            fail(std::string("'") + static_cast<char>(first) + "' where a value should stand");
        return;
    }
    std::int64_t depth = 0;
    for (;;) {
        if (!fill()) fail("the file ends within a list or an object");
        const std::size_t from = begin_;
        bool is_text = false;
        bool is_over = false;
        while (begin_ < end_) {
            const char c = buffer_[begin_];
            if (c == '"') {
                is_text = true;
                break;
            }
            ++begin_;
            line_ += c == '\n';
            if (c == '{' || c == '[') {
                ++depth;
            } else if ((c == '}' || c == ']') && --depth == 0) {
                is_over = true;
                break;
            }
        }
        value_bytes_ += begin_ - from;
        if (out != nullptr) {
            if (value_bytes_ > kMaxRowBytes)
                fail("the value is longer than " + std::to_string(kMaxRowBytes >> 20) + " MiB");
            out->append(buffer_.data() + from, begin_ - from);
        }
        if (is_over) return;
        if (is_text) scan_text(out);
    }
}

}  // namespace garam
