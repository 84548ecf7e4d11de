// Template source to tokens, with Jinja2's whitespace control and Transformers' settings (trim_blocks and
// lstrip_blocks on, one final newline dropped).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace garam::jinja {

enum class TokenKind {
    data,            // text as it is
    variable_begin,  // {{
    variable_end,
    block_begin,  // {%
    block_end,
    name,
    integer,
    real,
    string,  // unescaped
    op,      // operators and brackets
    end,
};

struct Token {
    TokenKind kind;
    std::string text;
    int line;
};

// Wrong or unsupported syntax; the caller adds the source's name.
struct SyntaxFailure {
    int line;
    std::string message;
};

// The last token is `end`. Throws SyntaxFailure.
std::vector<Token> tokenize(std::string_view source);

}  // namespace garam::jinja
