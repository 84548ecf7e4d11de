#include "garam/data/samples/sample_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "garam/core/token_batch.h"
#include "garam/text/unicode.h"

namespace garam {
namespace {

// Characters that are not seen, or make a terminal or a page show something else than what is there.
bool is_hidden(char32_t c) {
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0xAD || c == 0x61C || c == 0x180E ||
           (c >= 0x200B && c <= 0x200F && c != 0x200D) || (c >= 0x2028 && c <= 0x202E) ||
           (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFB) ||
           (c >= 0xE0000 && c <= 0xE007F);
}

void append_escaped(std::string& out, char32_t c) {
    if (c == '\n') {
        out += "\\n";
    } else if (c == '\t') {
        out += "\\t";
    } else if (c == '\r') {
        out += "\\r";
    } else if (c < 0x80) {
        out += fmt::format("\\x{:02X}", static_cast<unsigned>(c));
    } else {
        out += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    }
}

std::size_t characters_of(std::string_view text) {
    return static_cast<std::size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return !is_utf8_continuation(c); }));
}

// Bytes of the first `count` characters.
std::size_t bytes_of_first(std::string_view text, std::size_t count) {
    std::size_t at = 0;
    for (; count > 0 && at < text.size(); --count)
        at += utf8_length(text[at]);
    return std::min(at, text.size());
}

SamplePiece left_out(std::int64_t count, const char* what, bool target) {
    SamplePiece piece;
    piece.kind = SamplePiece::Kind::left_out;
    piece.target = target;
    piece.text = counted(count, what);
    return piece;
}

// Beginning and end of a piece beyond `limit` characters.
void append_within(std::vector<SamplePiece>& out, SamplePiece piece, std::size_t limit) {
    const std::size_t characters = characters_of(piece.text);
    if (characters <= limit) {
        out.push_back(std::move(piece));
        return;
    }
    const std::size_t head = limit * 2 / 3;
    const std::size_t tail = limit - head;
    const std::size_t head_end = bytes_of_first(piece.text, head);
    const std::size_t tail_begin = bytes_of_first(piece.text, characters - tail);
    SamplePiece end = piece;
    end.text = piece.text.substr(tail_begin);
    piece.text.resize(head_end);
    const bool target = piece.target;
    out.push_back(std::move(piece));
    out.push_back(left_out(static_cast<std::int64_t>(characters - limit), "character", target));
    out.push_back(std::move(end));
}

std::vector<SamplePiece> all_pieces(const Sample& sample, const Tokenizer& tokenizer) {
    std::vector<SamplePiece> pieces;
    StreamDecoder decoder(tokenizer, false);
    for (std::size_t t = 0; t < sample.ids.size(); ++t) {
        const std::int32_t id = sample.ids[t];
        // labels[0] is never scored: nothing comes before it.
        const bool target = t > 0 && sample.labels[t] != kIgnore;
        const bool special = tokenizer.is_special(id);
        const auto kind = special ? SamplePiece::Kind::special : SamplePiece::Kind::text;
        if (pieces.empty() || special || pieces.back().kind != kind ||
            pieces.back().target != target) {
            if (!pieces.empty()) pieces.back().text += decoder.flush();
            pieces.push_back({kind, target, "", 0});
        }
        pieces.back().text += decoder.push(id);
        ++pieces.back().tokens;
    }
    if (!pieces.empty()) pieces.back().text += decoder.flush();
    for (SamplePiece& piece : pieces)
        piece.text = replace_invalid_utf8(piece.text);
    return pieces;
}

}  // namespace

std::vector<SamplePiece> view_sample(const Sample& sample, const Tokenizer& tokenizer,
                                     std::size_t max_characters) {
    constexpr std::size_t kPieces = 40;
    // A sample of a million tokens is not decoded whole for the few that are seen.
    constexpr std::int64_t kDecoded = 16384;
    Sample begin;
    Sample end;
    const std::int64_t tokens = sample.tokens();
    const bool is_long = tokens > 2 * kDecoded;
    std::vector<SamplePiece> pieces;
    if (is_long) {
        begin.ids.assign(sample.ids.begin(), sample.ids.begin() + kDecoded);
        begin.labels.assign(sample.labels.begin(), sample.labels.begin() + kDecoded);
        end.ids.assign(sample.ids.end() - kDecoded, sample.ids.end());
        end.labels.assign(sample.labels.end() - kDecoded, sample.labels.end());
        pieces = all_pieces(begin, tokenizer);
        pieces.push_back(left_out(tokens - 2 * kDecoded, "token", false));
        for (SamplePiece& piece : all_pieces(end, tokenizer))
            pieces.push_back(std::move(piece));
    } else {
        pieces = all_pieces(sample, tokenizer);
    }
    std::size_t characters = 0;
    for (const SamplePiece& piece : pieces)
        characters += characters_of(piece.text);
    std::size_t limit = characters;
    if (characters > max_characters) {
        // The largest share that short pieces leave to each of the long ones.
        const std::size_t shown = std::min(pieces.size(), kPieces);
        limit = std::max<std::size_t>(24, max_characters / std::max<std::size_t>(1, shown));
        std::size_t spare = 0;
        std::size_t longer = 0;
        for (const SamplePiece& piece : pieces) {
            const std::size_t length = characters_of(piece.text);
            spare += length < limit ? limit - length : 0;
            longer += length > limit;
        }
        if (longer > 0 && pieces.size() <= kPieces) limit += spare / longer;
    }
    std::vector<SamplePiece> shown;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        if (pieces.size() > kPieces && i == kPieces / 2) {
            const std::size_t last = pieces.size() - kPieces / 2;
            std::int64_t skipped = 0;
            for (; i < last; ++i)
                skipped += pieces[i].tokens;
            shown.push_back(left_out(skipped, "token", false));
        }
        append_within(shown, std::move(pieces[i]), limit);
    }
    return shown;
}

std::string escape_controls(std::string_view text, bool keep_newlines) {
    const std::string valid = replace_invalid_utf8(text);
    std::string out;
    for (std::size_t at = 0; at < valid.size();) {
        const std::size_t begin = at;
        const char32_t c = next_code_point(valid, at);
        if (keep_newlines && c == '\n') {
            out += '\n';
        } else if (is_hidden(c)) {
            append_escaped(out, c);
        } else {
            out.append(valid, begin, at - begin);
        }
    }
    return out;
}

std::string shortened(std::string_view text, std::size_t characters) {
    const std::string escaped = escape_controls(text);
    const std::size_t end = bytes_of_first(escaped, characters);
    return end == escaped.size() ? escaped : escaped.substr(0, end) + "…";
}

std::size_t display_width(std::string_view text) {
    std::size_t width = 0;
    for (std::size_t at = 0; at < text.size();) {
        const char32_t c = next_code_point(text, at);
        const bool none = (c >= 0x300 && c <= 0x36F) || (c >= 0x1AB0 && c <= 0x1AFF) ||
                          (c >= 0x20D0 && c <= 0x20FF) || (c >= 0xFE00 && c <= 0xFE0F) ||
                          c == 0x200D;
        const bool wide = (c >= 0x1100 && c <= 0x115F) || (c >= 0x2E80 && c <= 0xA4CF) ||
                          (c >= 0xA960 && c <= 0xA97C) || (c >= 0xAC00 && c <= 0xD7A3) ||
                          (c >= 0xF900 && c <= 0xFAFF) || (c >= 0xFE30 && c <= 0xFE6F) ||
                          (c >= 0xFF00 && c <= 0xFF60) || (c >= 0xFFE0 && c <= 0xFFE6) ||
                          (c >= 0x1F300 && c <= 0x1FAFF) || (c >= 0x20000 && c <= 0x3FFFD);
        width += none ? 0 : wide ? 2 : 1;
    }
    return width;
}

std::string grouped_digits(std::int64_t number) {
    std::string digits = std::to_string(number);
    const std::ptrdiff_t first = number < 0 ? 1 : 0;
    for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > first; at -= 3)
        digits.insert(static_cast<std::size_t>(at), ",");
    return digits;
}

std::string counted(std::int64_t number, const char* what) {
    return grouped_digits(number) + " " + what + (number == 1 ? "" : "s");
}

std::string percent(double share) {
    const double value = share * 100;
    if (value == 0) return "0 %";
    if (value < 0.01) return "<0.01 %";
    if (value < 1) return fmt::format("{:.2f} %", value);
    return fmt::format("{:.1f} %", value);
}

}  // namespace garam
