// Cuts the elements of one JSON value out of a byte stream without parsing them, so that a document larger than
// memory is read element by element.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "garam/data/sources/byte_source.h"

namespace garam {

class JsonSplitter {
  public:
    explicit JsonSplitter(const std::filesystem::path& path);

    // The next byte that is no white space, which stays; -1 at the end.
    int peek();
    // Passes over `c`, the next byte that is no white space. False when it is another.
    bool take(char c);
    // Passes over a whole value (an object, a list, a text, a number, a word) and appends it to `out` if given.
    // Only its brackets and quotes are looked at: parsing finds what else is wrong. Throws Error where the file
    // ends within, or the value is longer than kMaxRowBytes.
    void value(std::string* out);
    // Of the byte that comes next, from 1.
    std::int64_t line() const { return line_; }
    const std::string& name() const { return name_; }
    [[noreturn]] void fail(const std::string& what) const;

  private:
    bool fill();
    void scan_text(std::string* out);

    std::string name_;
    std::unique_ptr<ByteSource> bytes_;
    std::vector<char> buffer_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
    std::int64_t line_ = 1;
    std::size_t value_bytes_ = 0;
};

}  // namespace garam
