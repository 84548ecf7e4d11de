// UTF-8 and the few character properties that tokenizers and templates need. Text is UTF-8 in
// std::string everywhere; functions that take "valid" text rely on first_invalid_utf8 having passed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace garam {

// Offset of the first byte that does not belong to well-formed UTF-8 (no surrogates, nothing above
// U+10FFFF, no overlong forms), or npos.
std::size_t first_invalid_utf8(std::string_view text);

// Bytes of the character that begins with this lead byte of valid text.
constexpr std::size_t utf8_length(char lead) {
    const auto byte = static_cast<unsigned char>(lead);
    return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
constexpr bool is_utf8_continuation(char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

// The code point at `at` of valid text; `at` moves behind it.
char32_t next_code_point(std::string_view text, std::size_t& at);
void append_utf8(std::string& out, char32_t code_point);

// Each maximal ill-formed part becomes one U+FFFD (Unicode 15, section 3.9, "substitution of maximal
// subparts"), as Rust's from_utf8_lossy and Python's errors="replace" do it.
std::string replace_invalid_utf8(std::string_view bytes);

// Python's str.isspace, which is what strip() and Jinja's whitespace control use.
bool is_python_space(char32_t code_point);
// White_Space of Unicode, which is what \s means to the reference tokenizers.
bool is_white_space(char32_t code_point);
// Python's str.isprintable of a character: what repr() shows as it is.
bool is_python_printable(char32_t code_point);
// [A-Za-z0-9_], letters, marks, digits of any script, circled letters and joiners: \w of Unicode (UTS 18).
bool is_word_character(char32_t code_point);
// Any number (N), which the reference's Digits splits off.
bool is_number(char32_t code_point);
// ASCII's punctuation and symbols, and what was punctuation (P) in Unicode 8, whose tables the reference has
// for this.
bool is_reference_punctuation(char32_t code_point);
// Combining marks (M) and those without width of their own (Mn), as the reference's StripAccents and
// BertNormalizer know them: what became or ceased to be one later stays what it was.
bool is_mark(char32_t code_point);
bool is_nonspacing_mark(char32_t code_point);
// Control, format and private-use characters (Cc, Cf, Co).
bool is_control(char32_t code_point);

// Simple (one to one) case mapping.
char32_t upper_case(char32_t code_point);
char32_t lower_case(char32_t code_point);
char32_t title_case(char32_t code_point);

}  // namespace garam
