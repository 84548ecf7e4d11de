#include "garam/data/sources/split_slice.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "garam/core/error.h"

namespace garam {
namespace {

constexpr std::int64_t kMaxRows = std::int64_t{1} << 53;

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t'))
        text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t'))
        text.remove_suffix(1);
    return text;
}

[[noreturn]] void refuse(std::string_view text, const std::string& what) {
    throw Error("split \"" + std::string(text) + "\": " + what +
                " (written as train, train[:90%], [100:200], train[-500:]+test)");
}

std::optional<std::int64_t> bound(std::string_view part, std::string_view text, bool& is_percent) {
    part = trimmed(part);
    if (part.empty()) return std::nullopt;
    if (part.back() == '%') {
        is_percent = true;
        part.remove_suffix(1);
    }
    std::string digits;  // 1_000_000
    for (const char c : part)
        if (c != '_') digits += c;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() ||
        value > kMaxRows || value < -kMaxRows)
        refuse(text, "'" + std::string(part) + "' is no whole number");
    return value;
}

SplitSlice parse_part(std::string_view part, std::string_view text) {
    SplitSlice slice;
    part = trimmed(part);
    if (part.ends_with(')')) {
        const std::size_t open = part.rfind('(');
        if (open == std::string_view::npos) refuse(text, "a ')' without its '('");
        const std::string_view rounding = part.substr(open + 1, part.size() - open - 2);
        if (rounding != "closest" && rounding != "pct1_dropremainder")
            refuse(text, "the rounding is closest or pct1_dropremainder");
        slice.drops_remainder = rounding == "pct1_dropremainder";
        part = part.substr(0, open);
    }
    const std::size_t open = part.find('[');
    slice.split = trimmed(part.substr(0, open));
    if (slice.split.find_first_of("[]():%/\\ ") != std::string::npos)
        refuse(text, "'" + slice.split + "' is no name of a split");
    if (open == std::string_view::npos) return slice;
    if (!part.ends_with(']')) refuse(text, "a '[' without its ']'");
    const std::string_view inner = part.substr(open + 1, part.size() - open - 2);
    const std::size_t colon = inner.find(':');
    if (colon == std::string_view::npos) refuse(text, "a slice has a colon");
    bool from_percent = false;
    bool to_percent = false;
    slice.from = bound(inner.substr(0, colon), text, from_percent);
    slice.to = bound(inner.substr(colon + 1), text, to_percent);
    if (slice.from && slice.to && from_percent != to_percent)
        refuse(text, "both ends are percents, or none");
    slice.is_percent = from_percent || to_percent;
    if (slice.is_percent) {
        for (const auto& end : {slice.from, slice.to})
            if (end.value_or(0) > 100 || end.value_or(0) < -100)
                refuse(text, "percents lie between -100 and 100");
    }
    return slice;
}

// Python's round(percent * rows / 100): halves go to the even number.
std::int64_t closest(std::int64_t percent, std::int64_t rows) {
    const bool is_negative = percent < 0;
    const auto product = static_cast<__int128>(is_negative ? -percent : percent) * rows;
    auto quotient = static_cast<std::int64_t>(product / 100);
    const auto rest = static_cast<int>(product % 100);
    if (rest > 50 || (rest == 50 && quotient % 2 == 1)) ++quotient;
    return is_negative ? -quotient : quotient;
}

}  // namespace

std::vector<SplitSlice> parse_split(const std::string& text) {
    std::vector<SplitSlice> slices;
    std::string_view rest = text;
    for (;;) {
        const std::size_t plus = rest.find('+');
        slices.push_back(parse_part(rest.substr(0, plus), text));
        if (plus == std::string_view::npos) break;
        rest.remove_prefix(plus + 1);
    }
    for (const SplitSlice& slice : slices)
        if (slices.size() > 1 && slice.split.empty() && slice.is_whole())
            refuse(text, "a sum has a split or a slice on each side of its plus");
    return slices;
}

RowRange resolve(const SplitSlice& slice, std::int64_t rows) {
    if (slice.is_percent && slice.drops_remainder && rows < 100)
        throw Error("split: pct1_dropremainder needs at least 100 rows, and there are " +
                    std::to_string(rows));
    const auto place = [&](const std::optional<std::int64_t>& end, std::int64_t otherwise) {
        if (!end) return otherwise;
        std::int64_t at = *end;
        if (slice.is_percent) at = slice.drops_remainder ? at * (rows / 100) : closest(at, rows);
        if (at < 0) at = std::max<std::int64_t>(rows + at, 0);
        return std::min(at, rows);
    };
    RowRange range{place(slice.from, 0), place(slice.to, rows)};
    range.end = std::max(range.begin, range.end);
    return range;
}

}  // namespace garam
