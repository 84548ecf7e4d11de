// A sample for a person to read: the text of its tokens, cut where targets or special tokens begin and end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "garam/data/samples/sample.h"
#include "garam/text/tokenizer.h"

namespace garam {

struct SamplePiece {
    enum class Kind : std::uint8_t { text, special, left_out };
    Kind kind = Kind::text;
    bool target = false;
    // Valid UTF-8, as decoded. left_out: what is not shown, in words ("1,204 tokens").
    std::string text;
    std::int64_t tokens = 0;
};

// At most about `max_characters` in all: pieces keep their beginning and end, and of many pieces the
// ones in the middle are left out. A character that is cut by a border shows as U+FFFD on both sides.
std::vector<SamplePiece> view_sample(const Sample& sample, const Tokenizer& tokenizer,
                                     std::size_t max_characters);

// Control characters, also those that change the direction of text or cannot be seen, as \n, \x1B, \u202E;
// what is no UTF-8 becomes U+FFFD. `keep_newlines`: they stay.
std::string escape_controls(std::string_view text, bool keep_newlines = false);

// The first `characters` of an escaped text on one line, with "…" where more follows.
std::string shortened(std::string_view text, std::size_t characters);

// Columns of a terminal that valid UTF-8 takes: two for wide East Asian characters and emoji.
std::size_t display_width(std::string_view text);

// "1,234,567"
std::string grouped_digits(std::int64_t number);
// "1 row", "2 rows"
std::string counted(std::int64_t number, const char* what);
// "12.3 %"; of few parts in a thousand "0.04 %"; "0 %"
std::string percent(double share);

}  // namespace garam
