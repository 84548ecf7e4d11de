// Text that was changed on its way to the tokenizer, with the way back: for each byte the bytes of the
// original that it stands for.
//
// Unchanged bytes stand for themselves; inserted ones for an empty span at their place; a character that
// was replaced as a whole (composition, case) for all bytes of what it came from.
//
// A tokenizer's description says what is put in a text, so no text may grow without bounds: see the limit.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "garam/text/tokenizer.h"

namespace garam {

class AlignedText {
  public:
    AlignedText() = default;
    // Bytes [begin, begin + text.size()) of the original, unchanged.
    AlignedText(std::string_view text, std::size_t begin)
        : text_(text), begin_(begin), limit_(text.size() * kMostGrowth + kMostAdded) {}

    const std::string& text() const { return text_; }
    std::string_view view(ByteSpan piece) const {
        return std::string_view(text_).substr(piece.begin, piece.end - piece.begin);
    }
    // Bytes of the original that bytes [begin, end) stand for.
    ByteSpan source(std::size_t begin, std::size_t end) const;
    ByteSpan source(ByteSpan piece) const { return source(piece.begin, piece.end); }

  private:
    friend class AlignedTextBuilder;
    // The most that Unicode's forms and the spelling of bytes make of a character is 22 times its bytes.
    static constexpr std::size_t kMostGrowth = 32;
    static constexpr std::size_t kMostAdded = 4096;
    std::string text_;
    std::size_t begin_ = 0;
    std::size_t limit_ = 0;          // bytes of what may be made of it
    std::vector<ByteSpan> sources_;  // one a byte; empty: unchanged
};

// Puts a new aligned text together from pieces of another one. Throws Error where it grows beyond the limit.
class AlignedTextBuilder {
  public:
    explicit AlignedTextBuilder(const AlignedText& from) : from_(from) {
        built_.text_.reserve(from.text_.size());
        built_.sources_.reserve(from.text_.size());
    }

    std::size_t size() const { return built_.text_.size(); }
    void keep(std::size_t begin, std::size_t end);  // bytes of `from` as they are
    void replace(std::size_t begin, std::size_t end, std::string_view by);  // as a whole
    void insert(std::size_t at, std::string_view text);  // before byte `at` of `from`
    AlignedText finish();

  private:
    void append(std::string_view text, ByteSpan source);
    void check_growth(std::size_t by) const;

    const AlignedText& from_;
    AlignedText built_;
};

}  // namespace garam
