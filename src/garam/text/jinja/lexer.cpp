#include "garam/text/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "garam/text/unicode.h"

namespace garam::jinja {
namespace {

bool is_name_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

class Lexer {
  public:
    explicit Lexer(std::string_view source) {
        // Line ends of other systems become \n; one at the very end is dropped.
        for (std::size_t i = 0; i < source.size(); ++i) {
            if (source[i] == '\r') {
                source_ += '\n';
                if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
            } else {
                source_ += source[i];
            }
        }
        if (!source_.empty() && source_.back() == '\n') source_.pop_back();
    }

    std::vector<Token> run() {
        while (at_ < source_.size()) {
            const std::size_t tag = next_tag(at_);
            if (tag == std::string::npos) {
                put_data(source_.substr(at_));
                at_ = source_.size();
                break;
            }
            const char type = source_[tag + 1];
            const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
            const std::string data = before_tag(source_.substr(at_, tag - at_), sign, type == '{');
            const std::size_t data_begin = at_;
            at_ = tag;
            put_data(data, line_at(data_begin));
            const int line = line_at(tag);
            at_ = tag + 2 + (sign == '-' || sign == '+' ? 1 : 0);
            if (type == '#') {
                const std::size_t close = source_.find("#}", at_);
                if (close == std::string::npos) throw SyntaxFailure{line, "a comment has no end"};
                // "-#}" and "+#}" carry their sign before the end.
                const char last = close > at_ ? source_[close - 1] : '\0';
                at_ = close + 2;
                after_tag(last, true);
            } else if (type == '%' && begins_raw()) {
                raw(line);
            } else {
                expression(type == '{', line);
            }
        }
        tokens_.push_back({TokenKind::end, "", line_at(source_.size())});
        return std::move(tokens_);
    }

  private:
    std::size_t next_tag(std::size_t from) const {
        for (std::size_t at = source_.find('{', from); at != std::string::npos;
             at = source_.find('{', at + 1)) {
            if (at + 1 < source_.size() &&
                (source_[at + 1] == '{' || source_[at + 1] == '%' || source_[at + 1] == '#'))
                return at;
        }
        return std::string::npos;
    }

    // Lines are asked for in ascending order.
    int line_at(std::size_t at) {
        for (; counted_ < at && counted_ < source_.size(); ++counted_)
            line_ += source_[counted_] == '\n';
        return line_;
    }

    void put_data(std::string text, int line = 0) {
        if (text.empty()) return;
        tokens_.push_back({TokenKind::data, std::move(text), line == 0 ? line_at(at_) : line});
    }

    // What a tag does to the text before it.
    std::string before_tag(std::string text, char sign, bool variable) const {
        if (sign == '-') {
            while (!text.empty()) {
                std::size_t start = text.size() - 1;
                while (start > 0 && is_utf8_continuation(text[start]))
                    --start;
                std::size_t at = start;
                if (!is_python_space(next_code_point(text, at))) break;
                text.resize(start);
            }
        } else if (sign != '+' && !variable) {
            const std::size_t newline = text.rfind('\n');
            const std::size_t start = newline == std::string::npos ? 0 : newline + 1;
            if ((start > 0 || line_starting_) && start < text.size()) {
                bool blank = true;
                for (std::size_t at = start; at < text.size();)
                    blank = is_python_space(next_code_point(text, at)) && blank;
                if (blank) text.resize(start);
            }
        }
        return text;
    }

    // What a tag does to the text behind it: `sign` stood before its end.
    void after_tag(char sign, bool trims_newline) {
        const std::size_t begin = at_;
        if (sign == '-') {
            while (at_ < source_.size()) {
                std::size_t next = at_;
                if (!is_python_space(next_code_point(source_, next))) break;
                at_ = next;
            }
        } else if (sign != '+' && trims_newline && at_ < source_.size() && source_[at_] == '\n') {
            ++at_;
        }
        line_starting_ = at_ > begin && source_[at_ - 1] == '\n';
    }

    void skip_space() {
        while (at_ < source_.size()) {
            std::size_t next = at_;
            if (!is_python_space(next_code_point(source_, next))) return;
            at_ = next;
        }
    }

    bool begins_raw() {
        std::size_t at = at_;
        while (at < source_.size() &&
               (source_[at] == ' ' || source_[at] == '\n' || source_[at] == '\t'))
            ++at;
        if (source_.compare(at, 3, "raw") != 0) return false;
        at += 3;
        while (at < source_.size() &&
               (source_[at] == ' ' || source_[at] == '\n' || source_[at] == '\t'))
            ++at;
        return source_.compare(at, 2, "%}") == 0 || source_.compare(at, 3, "-%}") == 0;
    }

    void raw(int line) {
        const std::size_t open = source_.find("%}", at_);
        at_ = open + 2;
        after_tag(source_[open - 1] == '-' ? '-' : '+', false);
        const std::size_t begin = at_;
        for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos;
             tag = source_.find("{%", tag + 1)) {
            std::size_t at = tag + 2;
            const char sign = at < source_.size() ? source_[at] : '\0';
            if (sign == '-' || sign == '+') ++at;
            while (at < source_.size() && (source_[at] == ' ' || source_[at] == '\n'))
                ++at;
            if (source_.compare(at, 6, "endraw") != 0) continue;
            const std::size_t close = source_.find("%}", at);
            if (close == std::string::npos) break;
            put_data(before_tag(source_.substr(begin, tag - begin), sign, false));
            at_ = close + 2;
            const char last = source_[close - 1];
            after_tag(last, true);
            return;
        }
        throw SyntaxFailure{line, "a raw block has no end"};
    }

    void expression(bool variable, int line) {
        tokens_.push_back(
            {variable ? TokenKind::variable_begin : TokenKind::block_begin, "", line});
        std::string open;  // brackets not yet closed
        const std::string_view end = variable ? "}}" : "%}";
        const std::string_view source = source_;
        for (;;) {
            skip_space();
            if (at_ >= source.size())
                throw SyntaxFailure{line, variable ? "\"{{\" has no end" : "\"{%\" has no end"};
            const char sign = source[at_];
            const bool signed_end =
                (sign == '-' || (sign == '+' && !variable)) && source.substr(at_ + 1, 2) == end;
            if (open.empty() && (signed_end || source.substr(at_, 2) == end)) {
                const int here = line_at(at_);
                at_ += signed_end ? 3 : 2;
                after_tag(signed_end ? sign : '\0', !variable);
                tokens_.push_back(
                    {variable ? TokenKind::variable_end : TokenKind::block_end, "", here});
                return;
            }
            lex_token(open);
        }
    }

    void lex_token(std::string& open) {
        const int line = line_at(at_);
        const char c = source_[at_];
        const auto put = [&](TokenKind kind, std::string text) {
            tokens_.push_back({kind, std::move(text), line});
        };
        if (is_name_start(c)) {
            const std::size_t begin = at_;
            while (at_ < source_.size() && (is_name_start(source_[at_]) || is_digit(source_[at_])))
                ++at_;
            put(TokenKind::name, source_.substr(begin, at_ - begin));
        } else if (is_digit(c)) {
            number(line);
        } else if (c == '"' || c == '\'') {
            put(TokenKind::string, string(c, line));
        } else {
            static constexpr std::array<std::string_view, 27> kOperators = {
                "**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<", ">",
                "(",  ")",  "[",  "]",  "{",  "}",  ".", ":", "|", ",", ";", "=", "!"};
            const std::string_view rest = std::string_view(source_).substr(at_);
            const auto found =
                std::find_if(kOperators.begin(), kOperators.end(),
                             [&](std::string_view op) { return rest.substr(0, op.size()) == op; });
            if (found == kOperators.end() || *found == "!" || *found == ";")
                throw SyntaxFailure{line, "unexpected character \"" +
                                              std::string(rest.substr(0, utf8_length(c))) + "\""};
            if (*found == "(" || *found == "[" || *found == "{") {
                open += *found == "(" ? ')' : *found == "[" ? ']' : '}';
            } else if (*found == ")" || *found == "]" || *found == "}") {
                if (open.empty() || open.back() != found->front())
                    throw SyntaxFailure{line, "unexpected \"" + std::string(*found) + "\""};
                open.pop_back();
            }
            at_ += found->size();
            put(TokenKind::op, std::string(*found));
        }
    }

    void number(int line) {
        std::string text;
        const auto digits = [&] {
            while (at_ < source_.size() &&
                   (is_digit(source_[at_]) || (source_[at_] == '_' && at_ + 1 < source_.size() &&
                                               is_digit(source_[at_ + 1])))) {
                if (source_[at_] != '_') text += source_[at_];
                ++at_;
            }
        };
        digits();
        bool real = false;
        if (at_ + 1 < source_.size() && source_[at_] == '.' && is_digit(source_[at_ + 1])) {
            real = true;
            text += source_[at_++];
            digits();
        }
        if (at_ < source_.size() && (source_[at_] == 'e' || source_[at_] == 'E')) {
            std::size_t exponent = at_ + 1;
            if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-'))
                ++exponent;
            if (exponent < source_.size() && is_digit(source_[exponent])) {
                real = true;
                text += source_.substr(at_, exponent - at_);
                at_ = exponent;
                digits();
            }
        }
        if (at_ < source_.size() && is_name_start(source_[at_]))
            throw SyntaxFailure{line, "a number runs into a name"};
        tokens_.push_back({real ? TokenKind::real : TokenKind::integer, std::move(text), line});
    }

    std::string string(char quote, int line) {
        std::string text;
        for (++at_; at_ < source_.size(); ++at_) {
            if (source_[at_] == quote) {
                ++at_;
                return text;
            }
            if (source_[at_] == '\\' && at_ + 1 < source_.size()) {
                ++at_;
                escape(text, line);
            } else {
                text += source_[at_];
            }
        }
        throw SyntaxFailure{line, "a string has no end"};
    }

    // Python's escapes; at_ is at the character behind the backslash, and stays at the last one used.
    void escape(std::string& text, int line) {
        const char c = source_[at_];
        constexpr std::string_view kFrom = "abfnrtv\\'\"";
        constexpr std::string_view kTo = "\a\b\f\n\r\t\v\\'\"";
        if (const std::size_t simple = kFrom.find(c); simple != std::string_view::npos) {
            text += kTo[simple];
            return;
        }
        if (c == '\n') return;  // a line that goes on
        const std::size_t count = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
        if (count > 0) {
            text_of_code(text, source_.substr(at_ + 1, count), count, 16, line);
            at_ += count;
        } else if (c >= '0' && c <= '7') {
            std::size_t end = at_;
            while (end < source_.size() && end < at_ + 3 && source_[end] >= '0' &&
                   source_[end] <= '7')
                ++end;
            const std::string octal = source_.substr(at_, end - at_);
            text_of_code(text, octal, octal.size(), 8, line);
            at_ = end - 1;
        } else {
            text += '\\';
            text += c;
        }
    }

    static void text_of_code(std::string& text, const std::string& digits, std::size_t count,
                             int base, int line) {
        const bool whole = digits.size() == count &&
                           digits.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
        const unsigned long code = whole ? std::stoul(digits, nullptr, base) : 0x110000;
        if (code >= 0x110000 || (code >= 0xD800 && code < 0xE000))
            throw SyntaxFailure{line, "a string holds an escape that is no character"};
        append_utf8(text, static_cast<char32_t>(code));
    }

    std::string source_;
    std::size_t at_ = 0;
    std::size_t counted_ = 0;
    int line_ = 1;
    bool line_starting_ = true;
    std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
    return Lexer(source).run();
}

}  // namespace garam::jinja
