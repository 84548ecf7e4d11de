// The lines of a text file, packed or not, read in blocks.
//
// A byte order mark at the start and CR at the end of a line are left out; a line without its newline at the end
// of the file counts. Throws Error naming the file when it cannot be read, is UTF-16, or holds a line beyond
// kMaxRowBytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "garam/data/sources/byte_source.h"

namespace garam {

class LineReader {
  public:
    explicit LineReader(const std::filesystem::path& path);
    // Appends the next line to `text`; false at the end.
    bool append_next(std::string& text);
    // Of the line read last, from 1.
    std::int64_t number() const { return number_; }
    const std::string& name() const { return name_; }

  private:
    std::string name_;
    std::unique_ptr<ByteSource> bytes_;
    std::vector<char> buffer_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
    std::int64_t number_ = 0;
};

// Texts in one piece of memory.
class TextPile {
  public:
    std::int64_t size() const { return static_cast<std::int64_t>(ends_.size()); }
    std::size_t bytes() const { return text_.size(); }
    std::string_view operator[](std::int64_t i) const {
        const auto at = static_cast<std::size_t>(i);
        const std::size_t begin = at == 0 ? 0 : ends_[at - 1];
        return std::string_view(text_).substr(begin, ends_[at] - begin);
    }
    // What is appended here belongs to the text that end_text() ends, or goes with drop_text().
    std::string& open_text() { return text_; }
    void end_text() { ends_.push_back(text_.size()); }
    void drop_text() { text_.resize(ends_.empty() ? 0 : ends_.back()); }
    std::string_view pending() const {
        return std::string_view(text_).substr(ends_.empty() ? 0 : ends_.back());
    }

  private:
    std::string text_;
    std::vector<std::size_t> ends_;
};

bool is_blank(std::string_view text);
// Throws Error "<where>: ..." when it is not UTF-8.
void check_utf8(std::string_view text, const std::string& where);
// Takes a byte order mark off the first text of a file. Throws Error when it is UTF-16's.
void strip_byte_order_mark(std::string& text, std::size_t begin, const std::string& name);

}  // namespace garam
