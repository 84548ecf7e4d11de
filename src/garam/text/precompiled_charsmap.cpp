#include "garam/text/precompiled_charsmap.h"

#include <utf8proc.h>

#include <algorithm>

#include "garam/core/error.h"
#include "garam/text/unicode.h"

namespace garam {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxReplacementBytes = 128;  // Unicode's longest has 33
constexpr std::size_t kGraphemeBytes = 6;  // from here on characters are looked up one by one

// A unit of darts-clone's double array.
bool has_leaf(std::uint32_t unit) {
    return (unit >> 8 & 1) != 0;
}
std::uint32_t value_of(std::uint32_t unit) {
    return unit & 0x7FFFFFFF;
}
std::uint32_t label_of(std::uint32_t unit) {
    return unit & 0x800000FF;
}
std::uint32_t offset_of(std::uint32_t unit) {
    return unit >> 10 << ((unit & 1 << 9) >> 6);
}

// End of the grapheme cluster that begins at `begin` of valid text.
std::size_t grapheme_end(std::string_view text, std::size_t begin) {
    std::size_t end = begin;
    auto before = static_cast<utf8proc_int32_t>(next_code_point(text, end));
    utf8proc_int32_t state = 0;
    while (end < text.size()) {
        std::size_t next = end;
        const auto c = static_cast<utf8proc_int32_t>(next_code_point(text, next));
        if (utf8proc_grapheme_break_stateful(before, c, &state)) break;
        before = c;
        end = next;
    }
    return end;
}

constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

PrecompiledCharsmap::PrecompiledCharsmap(std::string_view blob, const std::string& where) {
    const auto word = [&](std::size_t at) {
        std::uint32_t value = 0;
        for (std::size_t i = 0; i < 4; ++i)
            value |= std::uint32_t{static_cast<unsigned char>(blob[at + i])} << 8 * i;
        return value;
    };
    if (blob.size() > kMaxBytes)
        throw Error(where + ": a precompiled_charsmap of " + std::to_string(blob.size()) +
                    " bytes is too large");
    if (blob.size() < 4)
        throw Error(where + ": a precompiled_charsmap of " + std::to_string(blob.size()) +
                    " bytes is cut off");
    const std::size_t trie_bytes = word(0);
    if (trie_bytes % 4 != 0 || trie_bytes == 0 || trie_bytes > blob.size() - 4)
        throw Error(where + ": the precompiled_charsmap says that its trie has " +
                    std::to_string(trie_bytes) + " bytes, but it has " +
                    std::to_string(blob.size()) + " in all");
    units_.reserve(trie_bytes / 4);
    for (std::size_t at = 4; at < 4 + trie_bytes; at += 4)
        units_.push_back(word(at));
    replacements_ = blob.substr(4 + trie_bytes);
    if (first_invalid_utf8(replacements_) != std::string_view::npos)
        throw Error(where + ": the replacements of the precompiled_charsmap are not valid UTF-8");
    for (std::size_t at = 0; at < replacements_.size();) {
        const std::size_t end = std::min(replacements_.find('\0', at), replacements_.size());
        if (end - at > kMaxReplacementBytes)
            throw Error(where + ": the precompiled_charsmap has a replacement of " +
                        std::to_string(end - at) + " bytes; at most " +
                        std::to_string(kMaxReplacementBytes) + " are supported");
        at = end + 1;
    }
}

std::optional<std::string_view> PrecompiledCharsmap::find(std::string_view chunk) const {
    std::size_t at = offset_of(units_[0]);
    for (const char c : chunk) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte == 0) return std::nullopt;
        at ^= byte;
        if (at >= units_.size() || label_of(units_[at]) != byte) return std::nullopt;
        const std::uint32_t unit = units_[at];
        at ^= offset_of(unit);
        if (!has_leaf(unit)) continue;
        if (at >= units_.size()) return std::nullopt;
        const std::size_t begin = value_of(units_[at]);
        if (begin >= replacements_.size() || is_utf8_continuation(replacements_[begin]))
            return std::nullopt;
        const std::size_t end = std::min(replacements_.find('\0', begin), replacements_.size());
        return std::string_view(replacements_).substr(begin, end - begin);
    }
    return std::nullopt;
}

AlignedText PrecompiledCharsmap::apply(const AlignedText& text) const {
    const std::string& from = text.text();
    AlignedTextBuilder builder(text);
    std::size_t kept = 0;  // bytes before it are in the builder
    bool changed = false;
    const auto replace = [&](std::size_t begin, std::size_t end, std::string_view by) {
        if (by == std::string_view(from).substr(begin, end - begin)) return;
        builder.keep(kept, begin);
        builder.replace(begin, end, by);
        kept = end;
        changed = true;
    };
    for (std::size_t begin = 0; begin < from.size();) {
        const std::size_t end = grapheme_end(from, begin);
        if (end - begin < kGraphemeBytes) {
            const auto by = find(std::string_view(from).substr(begin, end - begin));
            if (by) {
                replace(begin, end, *by);
                begin = end;
                continue;
            }
        }
        while (begin < end) {
            const std::size_t next = begin + utf8_length(from[begin]);
            if (const auto by = find(std::string_view(from).substr(begin, next - begin)))
                replace(begin, next, *by);
            begin = next;
        }
    }
    if (!changed) return text;
    builder.keep(kept, from.size());
    return builder.finish();
}

std::optional<std::string> from_base64(std::string_view text) {
    while (!text.empty() && text.back() == '=')
        text.remove_suffix(1);
    std::string bytes;
    bytes.reserve(text.size() / 4 * 3 + 3);
    std::uint32_t bits = 0;
    int count = 0;
    for (const char c : text) {
        const std::size_t digit = kBase64.find(c);
        if (digit == std::string_view::npos) return std::nullopt;
        bits = bits << 6 | static_cast<std::uint32_t>(digit);
        count += 6;
        if (count < 8) continue;
        count -= 8;
        bytes += static_cast<char>(bits >> count & 0xFF);
    }
    return bytes;
}

std::string to_base64(std::string_view bytes) {
    std::string text;
    text.reserve((bytes.size() + 2) / 3 * 4);
    for (std::size_t at = 0; at < bytes.size(); at += 3) {
        std::uint32_t bits = 0;
        for (std::size_t i = 0; i < 3; ++i)
            bits = bits << 8 |
                   (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0u);
        for (std::size_t i = 0; i < 4; ++i)
            text += at + i <= bytes.size() ? kBase64[bits >> (18 - 6 * i) & 63] : '=';
    }
    return text;
}

}  // namespace garam
