#include "garam/text/jinja/methods.h"

#include <algorithm>
#include <array>
#include <set>

#include "garam/text/unicode.h"

namespace garam::jinja {
namespace {

// What the sandbox forbids: it would change a value.
constexpr std::array<std::string_view, 16> kForbidden = {
    "append", "clear",  "pop",     "popitem",    "setdefault",
    "update", "insert", "reverse", "remove",     "extend",
    "sort",   "add",    "discard", "appendleft", "difference_update",
    "rotate"};

constexpr std::array<std::string_view, 47> kMethods = {
    "strip",    "lstrip",    "rstrip",       "split",        "rsplit",  "splitlines", "startswith",
    "endswith", "replace",   "upper",        "lower",        "title",   "capitalize", "find",
    "count",    "join",      "removeprefix", "removesuffix", "isdigit", "items",      "keys",
    "values",   "get",       "index",        "cycle",        "changed", "copy",       "format",
    "rfind",    "rindex",    "partition",    "rpartition",   "zfill",   "center",     "ljust",
    "rjust",    "swapcase",  "casefold",     "isupper",      "islower", "isalpha",    "isalnum",
    "isspace",  "isnumeric", "isdecimal",    "istitle",      "fromkeys"};

bool is_cased(char32_t c) {
    return upper_case(c) != c || lower_case(c) != c;
}

const MarkedText& text_argument(const Arguments& arguments, std::size_t place,
                                std::string_view method) {
    if (place >= arguments.positional.size() || !arguments.positional[place].is_string())
        fail("\"" + std::string(method) + "\" needs a str");
    return *arguments.positional[place].string();
}

List split_at(const MarkedText& text, const std::string& separator, std::int64_t most,
              bool from_right) {
    if (separator.empty()) fail("\"split\" at an empty str");
    const std::string& from = text.text();
    std::vector<std::size_t> cuts;
    // From the right: the same on both texts written backwards.
    std::string backwards;
    std::string wanted = separator;
    if (from_right) {
        backwards.assign(from.rbegin(), from.rend());
        std::reverse(wanted.begin(), wanted.end());
    }
    const std::string_view searched = from_right ? backwards : from;
    for (std::size_t end = 0; most < 0 || static_cast<std::int64_t>(cuts.size()) < most;) {
        const std::size_t found = find_part(searched, wanted, end);
        if (found == std::string::npos) break;
        Budget::charge(sizeof(std::size_t));
        end = found + separator.size();
        cuts.push_back(from_right ? from.size() - end : found);
    }
    if (from_right) std::reverse(cuts.begin(), cuts.end());
    List out;
    std::size_t at = 0;
    for (const std::size_t cut : cuts) {
        out.items.emplace_back(text.slice(at, cut));
        at = cut + separator.size();
    }
    out.items.emplace_back(text.slice(at, from.size()));
    return out;
}

List split_at_space(const MarkedText& text, std::int64_t most) {
    const std::string& from = text.text();
    List out;
    std::size_t at = 0;
    const auto skip = [&](bool space) {
        while (at < from.size()) {
            std::size_t next = at;
            if (is_python_space(next_code_point(from, next)) != space) return;
            at = next;
        }
    };
    for (;;) {
        skip(true);
        if (at >= from.size()) return out;
        const std::size_t begin = at;
        if (most >= 0 && static_cast<std::int64_t>(out.items.size()) == most) {
            out.items.emplace_back(
                strip(text.slice(begin, from.size()), std::nullopt, false, true));
            return out;
        }
        skip(false);
        out.items.emplace_back(text.slice(begin, at));
    }
}

bool has_affix(const MarkedText& text, const Value& affix, bool at_end, Budget& budget) {
    const auto matches = [&](const Value& candidate) {
        if (!candidate.is_string()) fail("\"startswith\" and \"endswith\" need a str");
        const std::string& part = candidate.string()->text();
        budget.step();
        budget.scan(std::min(part.size(), text.size()));
        return part.size() <= text.size() &&
               text.text().compare(at_end ? text.size() - part.size() : 0, part.size(), part) == 0;
    };
    if (affix.list() == nullptr) return matches(affix);
    return std::any_of(affix.list()->items.begin(), affix.list()->items.end(), matches);
}

std::int64_t characters_before(const std::string& text, std::size_t end) {
    return std::count_if(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end),
                         [](char c) { return !is_utf8_continuation(c); });
}

Value padded(const MarkedText& text, std::string_view name, const Arguments& arguments,
             Budget& budget) {
    const std::int64_t width = arguments.get(0, "width").integer().value_or(-1);
    if (width < 0 || width > 1'000'000) fail("\"" + std::string(name) + "\" to that width");
    const std::int64_t missing = width - length(text, budget);
    if (missing <= 0) return text;
    const auto count = static_cast<std::size_t>(missing);
    const std::string fill = name == "zfill" ? "0"
                             : arguments.positional.size() > 1
                                 ? text_argument(arguments, 1, name).text()
                                 : " ";
    if (fill.size() != utf8_length(fill.empty() ? ' ' : fill[0]))
        fail("\"" + std::string(name) + "\" needs one character to fill with");
    // str.center puts the odd one to the left where the width is odd.
    const std::size_t left = name == "rjust" || name == "zfill" ? count
                             : name == "ljust"
                                 ? 0
                                 : count / 2 + (count & static_cast<std::size_t>(width) & 1);
    MarkedText out;
    std::size_t sign = 0;
    if (name == "zfill" && text.size() > 0 && (text.text()[0] == '-' || text.text()[0] == '+'))
        sign = 1;
    out.append(text, 0, sign);
    for (std::size_t i = 0; i < left; ++i)
        out.append_plain(fill);
    out.append(text, sign, text.size());
    for (std::size_t i = left; i < count; ++i)
        out.append_plain(fill);
    budget.pass(out.size());
    return out;
}

// str.isdigit and its like; beyond ASCII a letter is what has two cases or is no mark, digit or space.
bool is_all(const MarkedText& text, std::string_view name) {
    bool any = false;
    bool begins_word = true;
    for (std::size_t at = 0; at < text.size();) {
        const char32_t c = next_code_point(text.text(), at);
        const bool digit = c >= '0' && c <= '9';
        const bool upper = lower_case(c) != c;
        const bool lower = upper_case(c) != c;
        if (c >= 0x80 && (name == "isdigit" || name == "isnumeric" || name == "isdecimal" ||
                          ((name == "isalpha" || name == "isalnum") && !upper && !lower)))
            fail("\"" + std::string(name) + "\" of such a character is not supported");
        bool good = true;
        if (name == "isupper" || name == "islower") {
            any = any || upper || lower;
            good = name == "isupper" ? !lower : !upper;
        } else if (name == "istitle") {
            any = any || upper || lower;
            good = !(upper || lower) || upper == begins_word;
            begins_word = !(upper || lower);
        } else {
            any = true;
            good = name == "isspace"   ? is_python_space(c)
                   : name == "isalpha" ? upper || lower
                   : name == "isalnum" ? digit || upper || lower
                                       : digit;
        }
        if (!good) return false;
    }
    return any;
}

Value call_text_method(const MarkedText& text, std::string_view name, const Arguments& arguments,
                       Budget& budget) {
    const auto argument = [&](std::size_t place) -> const MarkedText& {
        return text_argument(arguments, place, name);
    };
    const auto count_at = [&](std::size_t place, std::string_view named) {
        const Value given = arguments.get(place, named);
        return given.is_undefined() ? std::int64_t{-1} : given.integer().value_or(-1);
    };
    if (name == "strip" || name == "lstrip" || name == "rstrip") {
        std::optional<std::string> characters;
        const Value given = arguments.get(0, "chars");
        if (!given.is_undefined() && !given.is_none()) characters = argument(0).text();
        return strip(text, characters, name != "rstrip", name != "lstrip");
    }
    if (name == "split" || name == "rsplit") {
        const Value separator = arguments.get(0, "sep");
        const std::int64_t most = count_at(1, "maxsplit");
        if (separator.is_undefined() || separator.is_none()) {
            if (name == "rsplit" && most >= 0) fail("\"rsplit\" at white space is not supported");
            return split_at_space(text, most);
        }
        if (!separator.is_string()) fail("\"split\" needs a str");
        return split_at(text, separator.string()->text(), most, name == "rsplit");
    }
    if (name == "splitlines") {
        return split_lines(text);
    }
    if (name == "startswith" || name == "endswith")
        return has_affix(text, arguments.get(0, "prefix"), name == "endswith", budget);
    if (name == "format") return format_text(text, arguments, budget);
    if (name == "partition" || name == "rpartition") {
        const std::string& separator = argument(0).text();
        if (separator.empty()) fail("\"partition\" at an empty str");
        const bool right = name == "rpartition";
        const std::size_t found =
            right ? find_last_part(text.text(), separator) : find_part(text.text(), separator);
        List parts;
        parts.tuple = true;
        if (found == std::string::npos) {
            parts.items = right ? std::vector<Value>{Value(""), Value(""), Value(text)}
                                : std::vector<Value>{Value(text), Value(""), Value("")};
        } else {
            const std::size_t behind = found + separator.size();
            parts.items = {Value(text.slice(0, found)), Value(text.slice(found, behind)),
                           Value(text.slice(behind, text.size()))};
        }
        return parts;
    }
    if (name == "zfill" || name == "center" || name == "ljust" || name == "rjust")
        return padded(text, name, arguments, budget);
    if (name == "casefold") return change_case(text, Case::lower);
    if (name == "swapcase") return change_case(text, Case::swap);
    if (name.starts_with("is")) return is_all(text, name);
    if (name == "replace")
        return replace(text, argument(0), argument(1), count_at(2, "count"), budget);
    if (name == "upper") return change_case(text, Case::upper);
    if (name == "lower") return change_case(text, Case::lower);
    if (name == "title") return change_case(text, Case::title);
    if (name == "capitalize") return change_case(text, Case::capitalize);
    if (name == "find" || name == "index" || name == "rfind" || name == "rindex") {
        if (arguments.positional.size() > 1)
            fail("\"" + std::string(name) + "\" from a place is not supported");
        const std::string& part = argument(0).text();
        const std::size_t found = name.starts_with('r') ? find_last_part(text.text(), part)
                                                        : find_part(text.text(), part);
        if (found != std::string::npos) return characters_before(text.text(), found);
        if (name.ends_with("index")) fail("\"index\": there is no such part");
        return std::int64_t{-1};
    }
    if (name == "count") {
        const std::string& part = argument(0).text();
        if (part.empty()) return length(text, budget) + 1;
        std::int64_t count = 0;
        for (std::size_t at = find_part(text.text(), part); at != std::string::npos;
             at = find_part(text.text(), part, at + part.size()))
            ++count;
        return count;
    }
    if (name == "join") return join(*iterate(arguments.get(0, "iterable"), budget), text, budget);
    if (name == "removeprefix") {
        const bool has = has_affix(text, argument(0), false, budget);
        return text.slice(has ? argument(0).size() : 0, text.size());
    }
    if (name == "removesuffix") {
        const bool has = has_affix(text, argument(0), true, budget);
        return text.slice(0, text.size() - (has ? argument(0).size() : 0));
    }
    fail("a str has no method \"" + std::string(name) + "\"");
}

Value call_dict_method(const Dict& dict, std::string_view name, const Arguments& arguments) {
    if (name == "items") return dict_items(dict);
    if (name == "keys" || name == "values") {
        List out;
        for (const auto& [key, value] : dict.entries)
            out.items.push_back(name == "keys" ? Value(key) : value);
        return out;
    }
    if (name == "get") {
        const Value key = arguments.get(0, "key");
        const Value* found = key.is_string() ? dict.find(key.string()->text()) : nullptr;
        return found != nullptr ? *found : arguments.get(1, "default", Value::none());
    }
    if (name == "copy") {
        Dict copy = dict;
        return copy;
    }
    fail("a dict has no method \"" + std::string(name) + "\"");
}

}  // namespace

bool is_method(std::string_view name) {
    return std::find(kMethods.begin(), kMethods.end(), name) != kMethods.end() ||
           std::find(kForbidden.begin(), kForbidden.end(), name) != kForbidden.end();
}

Value call_method(const Value& value, std::string_view name, const Arguments& arguments,
                  Budget& budget) {
    budget.step();
    if (std::find(kForbidden.begin(), kForbidden.end(), name) != kForbidden.end())
        fail("\"" + std::string(name) + "\" is forbidden: a template changes no values");
    if (const MarkedText* text = value.string()) {
        budget.pass(text->size());
        return call_text_method(*text, name, arguments, budget);
    }
    if (value.dict() != nullptr) {
        budget.pass(value.dict()->entries.size());
        return call_dict_method(*value.dict(), name, arguments);
    }
    if (const Loop* loop = value.loop(); loop != nullptr && name == "cycle") {
        if (arguments.positional.empty()) fail("\"loop.cycle\" needs values");
        return arguments.positional[loop->index % arguments.positional.size()];
    }
    if (value.list() != nullptr && (name == "index" || name == "count")) {
        std::int64_t count = 0;
        for (std::size_t i = 0; i < value.list()->items.size(); ++i) {
            if (!equal(value.list()->items[i], arguments.get(0, "value"), budget)) continue;
            if (name == "index") return static_cast<std::int64_t>(i);
            ++count;
        }
        if (name == "index") fail("\"index\": there is no such item");
        return count;
    }
    if (value.is_undefined())
        fail(value.undefined_name() + " is undefined, so it has no \"" + std::string(name) + "\"");
    fail(std::string("\"") + value.kind() + "\" has no method \"" + std::string(name) + "\"");
}

MarkedText strip(const MarkedText& text, const std::optional<std::string>& characters, bool left,
                 bool right) {
    const std::string& from = text.text();
    std::set<char32_t> set;
    if (characters) {
        for (std::size_t at = 0; at < characters->size();)
            set.insert(next_code_point(*characters, at));
    }
    const auto goes = [&](char32_t c) { return characters ? set.contains(c) : is_python_space(c); };
    std::size_t begin = 0;
    std::size_t end = from.size();
    while (left && begin < end) {
        std::size_t next = begin;
        if (!goes(next_code_point(from, next))) break;
        begin = next;
    }
    while (right && end > begin) {
        std::size_t start = end - 1;
        while (is_utf8_continuation(from[start]))
            --start;
        std::size_t at = start;
        if (!goes(next_code_point(from, at))) break;
        end = start;
    }
    return text.slice(begin, end);
}

MarkedText change_case(const MarkedText& text, Case to) {
    const std::string& from = text.text();
    MarkedText out;
    bool starts = true;  // of the text or of a word
    std::string changed;
    for (std::size_t at = 0; at < from.size();) {
        const std::size_t begin = at;
        const char32_t c = next_code_point(from, at);
        const bool up = to == Case::swap ? lower_case(c) == c
                                         : to == Case::upper || (to != Case::lower && starts);
        changed.clear();
        if (up && c == 0xDF) {
            changed = to == Case::upper || to == Case::swap ? "SS" : "Ss";
        } else {
            const bool titles = to == Case::capitalize || to == Case::title;
            append_utf8(changed, !up ? lower_case(c) : titles ? title_case(c) : upper_case(c));
        }
        if (to == Case::title) starts = !is_cased(c);
        if (to == Case::filter_title)
            starts = is_python_space(c) ||
                     (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) !=
                                      std::string_view::npos);
        if (to == Case::capitalize) starts = false;
        if (std::string_view(from).substr(begin, at - begin) == changed) {
            out.append(text, begin, at);
        } else {
            out.append_for(text, begin, at, changed);
        }
    }
    if (from.empty()) return text;
    return out;
}

MarkedText replace(const MarkedText& text, const MarkedText& from, const MarkedText& to,
                   std::int64_t count, Budget& budget) {
    const std::string& source = text.text();
    const std::string& pattern = from.text();
    MarkedText out;
    std::size_t at = 0;
    // An empty pattern stands before each character and at the end.
    std::size_t found = find_part(source, pattern);
    std::int64_t done = 0;
    while (found != std::string::npos && (count < 0 || done < count)) {
        budget.step();
        out.append(text, at, found);
        // A part of a message that is replaced stays part of it, unless by what is a message's too.
        if (to.marks().empty()) {
            out.append_for(text, found, found + pattern.size(), to.text());
        } else {
            out.append(to);
        }
        at = found + pattern.size();
        ++done;
        std::size_t next = at;
        if (pattern.empty()) {
            if (at >= source.size()) break;
            next = at + utf8_length(source[at]);
            out.append(text, at, next);
            at = next;
            found = next;
        } else {
            found = find_part(source, pattern, next);
        }
    }
    out.append(text, at, source.size());
    budget.pass(out.size());
    return out;
}

List split_lines(const MarkedText& text) {
    const std::string& from = text.text();
    List out;
    std::size_t begin = 0;
    for (std::size_t at = 0; at < from.size();) {
        const std::size_t end = at;
        const char32_t c = next_code_point(from, at);
        const bool breaks = (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                            c == 0x2028 || c == 0x2029;
        if (!breaks) continue;
        if (c == '\r' && at < from.size() && from[at] == '\n') ++at;
        out.items.emplace_back(text.slice(begin, end));
        begin = at;
    }
    if (begin < from.size()) out.items.emplace_back(text.slice(begin, from.size()));
    return out;
}

Value format_text(const MarkedText& text, const Arguments& arguments, Budget& budget) {
    const std::string& from = text.text();
    MarkedText out;
    std::size_t next = 0;
    for (std::size_t at = 0; at < from.size();) {
        const char c = from[at];
        if (c != '{' && c != '}') {
            const std::size_t end = std::min(from.find_first_of("{}", at), from.size());
            out.append(text, at, end);
            at = end;
            continue;
        }
        if (at + 1 < from.size() && from[at + 1] == c) {
            out.append(text, at, at + 1);
            at += 2;
            continue;
        }
        const std::size_t close = from.find('}', at);
        if (c == '}' || close == std::string::npos) fail("\"format\" of a text with a lone brace");
        const std::string field = from.substr(at + 1, close - at - 1);
        if (field.find_first_of(":!.[{") != std::string::npos)
            fail("\"format\" with \"" + field + "\" is not supported");
        const bool numbered = field.find_first_not_of("0123456789") == std::string::npos;
        const std::size_t place = field.empty() ? next++
                                  : numbered && field.size() < 6
                                      ? static_cast<std::size_t>(std::stoul(field))
                                      : arguments.positional.size();
        Value value;
        bool found = place < arguments.positional.size();
        if (found) value = arguments.positional[place];
        for (const auto& [name, given] : arguments.named) {
            if (found || numbered || name != field) continue;
            value = given;
            found = true;
        }
        if (!found) fail("\"format\" has no value for \"{" + field + "}\"");
        out.append(to_text(value, budget));
        at = close + 1;
    }
    budget.pass(out.size());
    return out;
}

Value format_percent(const MarkedText& text, const Value& value, Budget& budget) {
    const std::string& from = text.text();
    std::vector<Value> values = {value};
    if (value.list() != nullptr && value.list()->tuple) values = value.list()->items;
    std::size_t next = 0;
    MarkedText out;
    for (std::size_t at = 0; at < from.size();) {
        const std::size_t found = std::min(from.find('%', at), from.size());
        out.append(text, at, found);
        if (found == from.size()) break;
        const char kind = found + 1 < from.size() ? from[found + 1] : '\0';
        at = found + 2;
        if (kind == '%') {
            out.append_plain("%");
            continue;
        }
        if (kind != 's' && kind != 'd' && kind != 'i')
            fail("\"%\" with more than %s, %d and %% is not supported");
        if (next == values.size()) fail("\"%\" has too few values");
        const Value& given = values[next++];
        if (kind != 's' && !given.integer()) fail("\"%d\" needs a whole number");
        out.append(to_text(kind == 's' ? given : Value(*given.integer()), budget));
    }
    if (next != values.size()) fail("\"%\" has too many values");
    budget.pass(out.size());
    return out;
}

MarkedText join(const List& list, const MarkedText& separator, Budget& budget) {
    MarkedText out;
    for (std::size_t i = 0; i < list.items.size(); ++i) {
        budget.step();
        if (i > 0) out.append(separator);
        out.append(to_text(list.items[i], budget));
    }
    budget.pass(out.size());
    return out;
}

Value dict_items(const Dict& dict) {
    List out;
    for (const auto& [key, value] : dict.entries) {
        List pair;
        pair.tuple = true;
        pair.items = {Value(key), value};
        out.items.emplace_back(std::move(pair));
    }
    return out;
}

}  // namespace garam::jinja
