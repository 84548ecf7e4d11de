#include "garam/text/unicode_normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <bitset>
#include <memory>
#include <vector>

#include "garam/core/error.h"
#include "garam/text/unicode.h"

namespace garam {
namespace {

constexpr char32_t kCodePoints = 0x110000;

int combining_class(char32_t c) {
    return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

// Whether a character has a decomposition of any kind: most have none. Hangul syllables have theirs by rule.
bool decomposes(char32_t c) {
    return (c >= 0xAC00 && c <= 0xD7A3) ||
           utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->decomp_seqindex != 0xFFFF;
}

// Full decomposition of one character, appended.
void decompose(char32_t c, int options, std::vector<utf8proc_int32_t>& out) {
    utf8proc_int32_t buffer[32];
    int unused = 0;
    const utf8proc_ssize_t length =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), buffer, 32,
                                static_cast<utf8proc_option_t>(options), &unused);
    GARAM_CHECK(length >= 0 && length <= 32, "decomposition longer than Unicode allows");
    out.insert(out.end(), buffer, buffer + length);
}

// Characters that composition may join to something before them: the last one of any canonical
// decomposition. (A superset of NFC_Quick_Check=Maybe: more joins fewer boundaries, never a wrong one.)
const std::bitset<kCodePoints>& may_join() {
    static const auto* set = [] {
        auto* made = new std::bitset<kCodePoints>;
        std::vector<utf8proc_int32_t> parts;
        for (char32_t c = 0; c < kCodePoints; ++c) {
            if ((c >= 0xD800 && c < 0xE000) || !decomposes(c)) continue;
            parts.clear();
            decompose(c, UTF8PROC_DECOMPOSE, parts);
            if (parts.size() > 1) made->set(static_cast<std::size_t>(parts.back()));
        }
        return made;
    }();
    return *set;
}

int decomposition_of(NormalForm form) {
    return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (form.compatibility ? UTF8PROC_COMPAT : 0);
}

// Whether a character decomposed to parts that begin with this one never depends on what stands before it.
bool begins_group(utf8proc_int32_t first, NormalForm form) {
    const auto c = static_cast<char32_t>(first);
    return combining_class(c) == 0 && !(form.compose && may_join().test(c));
}

// Composes in place; in canonical order before. Returns the length.
std::size_t compose(std::vector<utf8proc_int32_t>& parts) {
    return static_cast<std::size_t>(utf8proc_normalize_utf32(
        parts.data(), static_cast<utf8proc_ssize_t>(parts.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE)));
}

// Characters that form a group of their own and stay what they are.
std::unique_ptr<const std::bitset<kCodePoints>> find_steady(NormalForm form) {
    auto made = std::make_unique<std::bitset<kCodePoints>>();
    std::vector<utf8proc_int32_t> parts;
    for (char32_t c = 0; c < kCodePoints; ++c) {
        if (c >= 0xD800 && c < 0xE000) continue;
        if (!decomposes(c)) {
            (*made)[c] = begins_group(static_cast<utf8proc_int32_t>(c), form);
            continue;
        }
        parts.clear();
        decompose(c, decomposition_of(form), parts);
        if (!begins_group(parts[0], form)) continue;
        if (form.compose) parts.resize(compose(parts));
        (*made)[c] = parts.size() == 1 && static_cast<char32_t>(parts[0]) == c;
    }
    return made;
}

template <bool kCompose, bool kCompatibility>
const std::bitset<kCodePoints>& steady() {
    static const auto set = find_steady({kCompose, kCompatibility});
    return *set;
}

bool is_ascii(char c) {
    return static_cast<unsigned char>(c) < 0x80;
}

}  // namespace

bool is_normal(std::string_view text, NormalForm form) {
    const auto* at = std::find_if_not(text.begin(), text.end(), is_ascii);
    if (at == text.end()) return true;
    const std::bitset<kCodePoints>& set =
        form.compose ? (form.compatibility ? steady<true, true>() : steady<true, false>())
                     : (form.compatibility ? steady<false, true>() : steady<false, false>());
    for (auto i = static_cast<std::size_t>(at - text.begin()); i < text.size();) {
        if (is_ascii(text[i])) {
            ++i;
        } else if (!set[next_code_point(text, i)]) {
            return false;
        }
    }
    return true;
}

AlignedText normal_form(const AlignedText& text, NormalForm form) {
    const std::string& from = text.text();
    if (is_normal(from, form)) return text;

    const int options = decomposition_of(form);
    AlignedTextBuilder builder(text);
    // Works in groups that normalise independently of their neighbours: a group ends before a character
    // whose decomposition begins with a starter that joins nothing before it.
    std::vector<utf8proc_int32_t> parts;
    std::size_t group = 0;
    const auto finish_group = [&](std::size_t end) {
        if (group == end) return;
        const std::string_view was = std::string_view(from).substr(group, end - group);
        // Canonical order: a stable sort of each run of marks.
        for (std::size_t i = 0; i < parts.size();) {
            std::size_t run = i;
            const auto mark = [&](std::size_t at) {
                return combining_class(static_cast<char32_t>(parts[at])) != 0;
            };
            while (run < parts.size() && mark(run))
                ++run;
            std::stable_sort(parts.begin() + static_cast<std::ptrdiff_t>(i),
                             parts.begin() + static_cast<std::ptrdiff_t>(run),
                             [](utf8proc_int32_t a, utf8proc_int32_t b) {
                                 return combining_class(static_cast<char32_t>(a)) <
                                        combining_class(static_cast<char32_t>(b));
                             });
            i = std::max(run, i + 1);
        }
        if (form.compose) parts.resize(compose(parts));
        std::string now;
        for (const utf8proc_int32_t part : parts)
            append_utf8(now, static_cast<char32_t>(part));
        if (now == was) {
            builder.keep(group, end);
        } else {
            builder.replace(group, end, now);
        }
        parts.clear();
        group = end;
    };
    for (std::size_t at = 0; at < from.size();) {
        const std::size_t begin = at;
        const char32_t c = next_code_point(from, at);
        const std::size_t before = parts.size();
        decompose(c, options, parts);
        if (begins_group(parts[before], form)) {
            const std::vector<utf8proc_int32_t> own(
                parts.begin() + static_cast<std::ptrdiff_t>(before), parts.end());
            parts.resize(before);
            finish_group(begin);
            parts = own;
        }
    }
    finish_group(from.size());
    return builder.finish();
}

}  // namespace garam
