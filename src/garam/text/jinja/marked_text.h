// Text that remembers which of its bytes are the content of which message, through everything that a
// template does to it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace garam::jinja {

struct Mark {
    std::size_t begin = 0;  // bytes; begin == end where an empty content stands
    std::size_t end = 0;
    int message = 0;
};

class MarkedText {
  public:
    MarkedText() = default;
    MarkedText(std::string text) : text_(std::move(text)) {}  // no message's
    MarkedText(std::string text, int message);                // all of it one message's content

    const std::string& text() const { return text_; }
    std::size_t size() const { return text_.size(); }
    // In order; marks of one message that touch are one.
    const std::vector<Mark>& marks() const { return marks_; }

    void append_plain(std::string_view text) { text_ += text; }
    void append(const MarkedText& other);
    // Bytes [begin, end) of `other`.
    void append(const MarkedText& other, std::size_t begin, std::size_t end);
    // `text` in the place of bytes [begin, end) of `other`: bears the marks of those bytes.
    void append_for(const MarkedText& other, std::size_t begin, std::size_t end,
                    std::string_view text);
    MarkedText slice(std::size_t begin, std::size_t end) const;

  private:
    void mark(const Mark& mark);

    std::string text_;
    std::vector<Mark> marks_;
};

}  // namespace garam::jinja
