#include "garam/text/character_filter.h"

#include <optional>

#include "garam/text/bpe_model.h"
#include "garam/text/unicode.h"

namespace garam {
namespace {

// `by` says what becomes of a character: itself, another one, or nothing.
template <typename By>
AlignedText mapped(const AlignedText& text, By by) {
    const std::string& from = text.text();
    AlignedTextBuilder builder(text);
    std::size_t kept = 0;
    bool changed = false;
    for (std::size_t at = 0; at < from.size();) {
        const std::size_t begin = at;
        const char32_t c = next_code_point(from, at);
        const std::optional<char32_t> now = by(c);
        if (now && *now == c) continue;
        builder.keep(kept, begin);
        if (now) {
            std::string spelled;
            append_utf8(spelled, *now);
            builder.replace(begin, at, spelled);
        }
        kept = at;
        changed = true;
    }
    if (!changed) return text;
    builder.keep(kept, from.size());
    return builder.finish();
}

template <typename Drops>
AlignedText without(const AlignedText& text, Drops drops) {
    return mapped(text, [&](char32_t c) {
        return drops(c) ? std::optional<char32_t>() : std::optional<char32_t>(c);
    });
}

bool is_ideograph(char32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

}  // namespace

AlignedText without_marks(const AlignedText& text) {
    return without(text, is_mark);
}

AlignedText without_nonspacing_marks(const AlignedText& text) {
    return without(text, is_nonspacing_mark);
}

AlignedText nmt_cleaned(const AlignedText& text) {
    return mapped(text, [](char32_t c) -> std::optional<char32_t> {
        if ((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
            c == 0x8F || c == 0x9F)
            return std::nullopt;
        if (c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
            (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
            c == 0xFEFF || c == 0xFFFD)
            return U' ';
        return c;
    });
}

AlignedText bert_cleaned(const AlignedText& text) {
    return mapped(text, [](char32_t c) -> std::optional<char32_t> {
        if (c == '\t' || c == '\n' || c == '\r') return U' ';
        if (c == 0 || c == 0xFFFD || is_control(c)) return std::nullopt;
        return is_white_space(c) ? U' ' : c;
    });
}

AlignedText with_spaced_ideographs(const AlignedText& text) {
    const std::string& from = text.text();
    AlignedTextBuilder builder(text);
    for (std::size_t at = 0; at < from.size();) {
        const std::size_t begin = at;
        const bool spaced = is_ideograph(next_code_point(from, at));
        if (spaced) builder.insert(begin, " ");
        builder.keep(begin, at);
        if (spaced) builder.insert(at, " ");
    }
    return builder.finish();
}

AlignedText spelled_as_bytes(const AlignedText& text) {
    const std::string& from = text.text();
    AlignedTextBuilder builder(text);
    std::string spelled;
    for (std::size_t at = 0; at < from.size(); ++at) {
        spelled.clear();
        append_utf8(spelled, byte_characters()[static_cast<unsigned char>(from[at])]);
        builder.replace(at, at + 1, spelled);
    }
    return builder.finish();
}

}  // namespace garam
