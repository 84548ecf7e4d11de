// Where a parser is in the tokens of a template, and what it may ask there.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "garam/text/jinja/lexer.h"

namespace garam::jinja {

constexpr int kMaxNesting = 64;  // of blocks, and of brackets and operators in an expression

class TokenCursor {
  public:
    explicit TokenCursor(std::string_view source) : tokens_(tokenize(source)) {}

    // Counts nesting while a rule is at work.
    class Level {
      public:
        Level(int& depth, int line) : depth_(depth) {
            if (depth_ >= kMaxNesting) throw SyntaxFailure{line, "nested deeper than 64"};
            ++depth_;
        }
        ~Level() { --depth_; }
        Level(const Level&) = delete;
        Level& operator=(const Level&) = delete;

      private:
        int& depth_;
    };

    const Token& token() const { return tokens_[at_]; }
    const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
    int line() const { return token().line; }
    Token take() { return std::move(tokens_[at_++]); }
    bool is_op(std::string_view text) const {
        return token().kind == TokenKind::op && token().text == text;
    }
    bool is_name(std::string_view text) const {
        return token().kind == TokenKind::name && token().text == text;
    }
    bool skip_op(std::string_view text) {
        if (!is_op(text)) return false;
        ++at_;
        return true;
    }
    bool skip_name(std::string_view text) {
        if (!is_name(text)) return false;
        ++at_;
        return true;
    }
    // Steps over the current token.
    void skip() { ++at_; }
    std::string describe() const {
        switch (token().kind) {
            case TokenKind::end:
                return "the end of the template";
            case TokenKind::variable_end:
                return "\"}}\"";
            case TokenKind::block_end:
                return "\"%}\"";
            default:
                return "\"" + token().text + "\"";
        }
    }
    [[noreturn]] void unexpected(const std::string& wanted) const {
        throw SyntaxFailure{line(), "expected " + wanted + ", found " + describe()};
    }
    void expect_op(std::string_view text) {
        if (!skip_op(text)) unexpected("\"" + std::string(text) + "\"");
    }
    void expect_name(std::string_view text) {
        if (!skip_name(text)) unexpected("\"" + std::string(text) + "\"");
    }
    std::string expect_any_name() {
        if (token().kind != TokenKind::name) unexpected("a name");
        return take().text;
    }
    void expect_block_end() {
        if (token().kind != TokenKind::block_end) unexpected("\"%}\"");
        ++at_;
    }

  private:
    std::vector<Token> tokens_;
    std::size_t at_ = 0;
};

}  // namespace garam::jinja
