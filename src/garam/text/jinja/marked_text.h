// Text that remembers which of its bytes came from which message, through everything that a template
// does to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace garam::jinja {

enum class Origin : std::uint8_t {
    content,  // of the message's content
    data,     // of another member: a thought, a tool call
    literal,  // the template's own words, or a role, written while it was at that message
};

struct Mark {
    std::size_t begin = 0;  // bytes; begin == end where an empty content stands
    std::size_t end = 0;
    int message = -1;  // -1: nobody's
    Origin origin = Origin::content;
    bool generation = false;  // written within {% generation %}

    bool same_source(const Mark& other) const {
        return message == other.message && origin == other.origin && generation == other.generation;
    }
};

// As std::string's find and rfind, but in a time that grows with the texts' sizes, not with their product.
std::size_t find_part(std::string_view text, std::string_view part, std::size_t from = 0);
std::size_t find_last_part(std::string_view text, std::string_view part);

class MarkedText {
  public:
    MarkedText() = default;
    MarkedText(std::string text) : text_(std::move(text)) {}  // no message's
    // All of it one message's.
    MarkedText(std::string text, int message, Origin origin = Origin::content);

    const std::string& text() const { return text_; }
    std::size_t size() const { return text_.size(); }
    // Bytes of memory behind it.
    std::size_t held_bytes() const { return text_.capacity() + marks_.capacity() * sizeof(Mark); }
    // In order and apart; marks of one source that touch are one.
    const std::vector<Mark>& marks() const { return marks_; }

    // What makes a text longer throws Failure where it takes more than Budget::kMaxText.
    void append_plain(std::string_view text);
    void append(const MarkedText& other);
    // Bytes [begin, end) of `other`.
    void append(const MarkedText& other, std::size_t begin, std::size_t end);
    // `text` in the place of bytes [begin, end) of `other`: bears the marks of those bytes.
    void append_for(const MarkedText& other, std::size_t begin, std::size_t end,
                    std::string_view text);
    MarkedText slice(std::size_t begin, std::size_t end) const;
    // What bears no mark yet becomes the template's own words at that message.
    void own(int message);
    // All of it was written within {% generation %}.
    void set_generation();

  private:
    void mark(const Mark& mark);
    void check_size() const;
    // The first that ends at `begin` or behind it.
    std::vector<Mark>::const_iterator marks_from(std::size_t begin) const;

    std::string text_;
    std::vector<Mark> marks_;
};

}  // namespace garam::jinja
