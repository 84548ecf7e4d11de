#include "garam/text/jinja/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "garam/text/jinja/collection_filters.h"
#include "garam/text/jinja/methods.h"
#include "garam/text/unicode.h"

namespace garam::jinja {
namespace {

using Filter = Value (*)(const Value&, const Arguments&, Budget&);
using Test = bool (*)(const Value&, const Arguments&, Budget&);

std::string_view trimmed(std::string_view text) {
    const auto space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
    while (!text.empty() && space(text.front()))
        text.remove_prefix(1);
    while (!text.empty() && space(text.back()))
        text.remove_suffix(1);
    if (text.size() > 1 && text.front() == '+') text.remove_prefix(1);
    return text;
}

template <typename Number>
std::optional<Number> parsed(std::string_view text) {
    text = trimmed(text);
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

std::optional<double> float_of(const Value& value) {
    if (value.is_undefined()) fail(value.undefined_name() + " is undefined");
    if (const auto number = value.number()) return number;
    return value.is_string() ? parsed<double>(value.string()->text()) : std::nullopt;
}

Value to_integer(const Value& value, const Arguments& arguments, Budget&) {
    if (const auto whole = value.integer()) return *whole;
    if (value.is_string()) {
        if (const auto whole = parsed<std::int64_t>(value.string()->text())) return *whole;
    }
    const auto number = float_of(value);
    if (number && std::fabs(*number) < 9.2e18) return static_cast<std::int64_t>(*number);
    return arguments.get(0, "default", Value(std::int64_t{0}));
}

Value absolute(const Value& value, const Arguments&, Budget&) {
    if (const auto whole = value.integer()) {
        if (*whole == INT64_MIN) fail("a number is too large");
        return *whole < 0 ? -*whole : *whole;
    }
    if (const auto number = value.number()) return std::fabs(*number);
    fail(std::string("\"abs\" needs a number, not ") + value.kind());
}

Value to_default(const Value& value, const Arguments& arguments, Budget&) {
    const bool also_falsy = arguments.get(1, "boolean", Value(false)).truthy();
    if (value.is_undefined() || (also_falsy && !value.truthy()))
        return arguments.get(0, "default_value", Value(""));
    return value;
}

Value indent(const Value& value, const Arguments& arguments, Budget& budget) {
    const Value width = arguments.get(0, "width", Value(std::int64_t{4}));
    const bool first = arguments.get(1, "first", Value(false)).truthy();
    const bool blank = arguments.get(2, "blank", Value(false)).truthy();
    std::string by;
    if (width.is_string()) {
        by = width.string()->text();
    } else {
        const std::int64_t count = width.integer().value_or(4);
        if (count < 0 || count > 1000) fail("\"indent\" by that much");
        by.assign(static_cast<std::size_t>(count), ' ');
    }
    if (!value.is_string()) fail(std::string("\"indent\" needs a str, not ") + value.kind());
    MarkedText text = *value.string();
    text.append_plain("\n");
    const List lines = split_lines(text);
    MarkedText out;
    for (std::size_t i = 0; i < lines.items.size(); ++i) {
        const MarkedText& line = *lines.items[i].string();
        if (i > 0) out.append_plain("\n");
        if (i == 0 ? first : (blank || line.size() > 0)) out.append_plain(by);
        out.append(line);
    }
    budget.pass(out.size());
    return out;
}

Value ends_of(const Value& value, bool last, Budget& budget) {
    const auto items = iterate(value, budget);
    if (items->items.empty()) return Value::undefined(last ? "the last item" : "the first item");
    return last ? items->items.back() : items->items.front();
}

Value reversed(const Value& value, Budget& budget) {
    List out = *iterate(value, budget);
    std::reverse(out.items.begin(), out.items.end());
    if (!value.is_string()) return out;
    return join(out, MarkedText(), budget);
}

// select, reject, selectattr, rejectattr: keeps what passes, or does not pass, a test.
Value selected(const Value& value, const Arguments& arguments, bool wanted, bool by_attribute,
               Budget& budget) {
    std::size_t used = 0;
    std::string path;
    if (by_attribute) {
        const Value named = arguments.get(used++, "");
        if (!named.is_string()) fail("\"selectattr\" needs the name of an attribute");
        path = named.string()->text();
    }
    const Value test = arguments.get(used++, "");
    if (!test.is_undefined() && (!test.is_string() || !is_test(test.string()->text())))
        fail("there is no such test");
    Arguments rest;
    for (; used < arguments.positional.size(); ++used)
        rest.positional.push_back(arguments.positional[used]);
    List out;
    if (!value.truthy()) return out;
    const auto items = iterate(value, budget);
    for (const Value& entry : items->items) {
        const Value tested = by_attribute ? attribute_path(entry, path, budget) : entry;
        const bool passes = test.is_undefined()
                                ? tested.truthy()
                                : apply_test(test.string()->text(), tested, rest, budget);
        if (passes == wanted) out.items.push_back(entry);
    }
    return out;
}

Value mapped(const Value& value, const Arguments& arguments, Budget& budget) {
    const Value named = arguments.get(arguments.positional.size(), "attribute");
    const Value otherwise = arguments.get(arguments.positional.size(), "default");
    List out;
    if (!value.truthy()) return out;
    const Value filter = arguments.get(0, "");
    Arguments rest;
    rest.named = arguments.named;
    if (!arguments.positional.empty())
        rest.positional.assign(arguments.positional.begin() + 1, arguments.positional.end());
    const auto items = iterate(value, budget);
    for (const Value& entry : items->items) {
        if (named.is_string()) {
            const Value got = attribute_path(entry, named.string()->text(), budget);
            out.items.push_back(got.is_undefined() ? otherwise : got);
            continue;
        }
        if (!filter.is_string() || !is_filter(filter.string()->text()))
            fail("\"map\" needs a filter's name or attribute=");
        out.items.push_back(apply_filter(filter.string()->text(), entry, rest, budget));
    }
    return out;
}

Value joined(const Value& value, const Arguments& arguments, Budget& budget) {
    const MarkedText separator = to_text(arguments.get(0, "d", Value("")), budget);
    const Value named = arguments.get(1, "attribute");
    if (!named.is_string()) return join(*iterate(value, budget), separator, budget);
    List parts;
    const auto items = iterate(value, budget);
    for (const Value& entry : items->items)
        parts.items.push_back(attribute_path(entry, named.string()->text(), budget));
    return join(parts, separator, budget);
}

Value replaced(const Value& value, const Arguments& arguments, Budget& budget) {
    const Value count = arguments.get(2, "count");
    return replace(to_text(value, budget), to_text(arguments.get(0, "old"), budget),
                   to_text(arguments.get(1, "new"), budget),
                   count.is_undefined() || count.is_none() ? -1 : count.integer().value_or(-1),
                   budget);
}

Value cased(const Value& value, Case to, Budget& budget) {
    const MarkedText text = to_text(value, budget);
    budget.pass(text.size());
    return change_case(text, to);
}

Value to_tojson(const Value& value, const Arguments& arguments, Budget& budget) {
    for (const auto& [name, given] : arguments.named) {
        if (name != "indent" && name != "ensure_ascii" && name != "separators" &&
            name != "sort_keys")
            fail("\"tojson\" with \"" + name + "\" is not supported");
    }
    JsonStyle style;
    style.ensure_ascii = arguments.get(0, "ensure_ascii", Value(false)).truthy();
    const Value indent = arguments.get(1, "indent", Value::none());
    if (indent.is_string()) {
        style.indent = indent.string()->text();
    } else if (!indent.is_none()) {
        const std::int64_t width = indent.integer().value_or(-1);
        if (!indent.integer() || width > 32) fail("\"tojson\" with such an indent");
        style.indent = std::string(static_cast<std::size_t>(std::max<std::int64_t>(0, width)), ' ');
    }
    style.item_separator = style.indent ? "," : ", ";
    style.key_separator = ": ";
    const Value separators = arguments.get(2, "separators", Value::none());
    if (!separators.is_none()) {
        const auto pair = iterate(separators, budget);
        if (pair->items.size() != 2 || !pair->items[0].is_string() || !pair->items[1].is_string())
            fail("\"tojson\" needs two separators");
        style.item_separator = pair->items[0].string()->text();
        style.key_separator = pair->items[1].string()->text();
    }
    style.sort_keys = arguments.get(3, "sort_keys", Value(false)).truthy();
    return to_json(value, style, budget);
}

Value escaped(const Value& value, Budget& budget) {
    const MarkedText text = to_text(value, budget);
    MarkedText out;
    for (std::size_t at = 0; at < text.size(); ++at) {
        const char c = text.text()[at];
        const char* name = c == '&'    ? "&amp;"
                           : c == '<'  ? "&lt;"
                           : c == '>'  ? "&gt;"
                           : c == '"'  ? "&#34;"
                           : c == '\'' ? "&#39;"
                                       : nullptr;
        if (name != nullptr) {
            out.append_for(text, at, at + 1, name);
        } else {
            out.append(text, at, at + 1);
        }
    }
    budget.pass(out.size());
    return out;
}

const std::map<std::string_view, Filter>& filters() {
    static const std::map<std::string_view, Filter> table = {
        {"abs", absolute},
        {"attr",
         [](const Value& v, const Arguments& a, Budget& b) {
             // Keys of a dict are no attributes of it.
             if (v.dict() != nullptr) return Value::undefined("the attribute");
             return attribute(v, to_text(a.get(0, "name"), b).text(), b);
         }},
        {"batch", batched},
        {"capitalize",
         [](const Value& v, const Arguments&, Budget& b) { return cased(v, Case::capitalize, b); }},
        {"count", [](const Value& v, const Arguments&, Budget& b) { return Value(length(v, b)); }},
        {"d", to_default},
        {"default", to_default},
        {"dictsort", dict_sorted},
        {"e", [](const Value& v, const Arguments&, Budget& b) { return escaped(v, b); }},
        {"escape", [](const Value& v, const Arguments&, Budget& b) { return escaped(v, b); }},
        {"first", [](const Value& v, const Arguments&, Budget& b) { return ends_of(v, false, b); }},
        {"float",
         [](const Value& v, const Arguments& a, Budget&) {
             const auto number = float_of(v);
             return number ? Value(*number) : a.get(0, "default", Value(0.0));
         }},
        {"format",
         [](const Value& v, const Arguments& a, Budget& b) {
             List values;
             values.tuple = true;
             values.items = a.positional;
             if (!a.named.empty()) fail("\"format\" with names is not supported");
             return format_percent(to_text(v, b), Value(std::move(values)), b);
         }},
        {"groupby", grouped},
        {"indent", indent},
        {"int", to_integer},
        {"items",
         [](const Value& v, const Arguments&, Budget&) {
             if (v.is_undefined()) return Value(List{});
             if (v.dict() == nullptr) fail("\"items\" needs a dict");
             return dict_items(*v.dict());
         }},
        {"join", joined},
        {"last", [](const Value& v, const Arguments&, Budget& b) { return ends_of(v, true, b); }},
        {"length", [](const Value& v, const Arguments&, Budget& b) { return Value(length(v, b)); }},
        {"list",
         [](const Value& v, const Arguments&, Budget& b) {
             List list = *iterate(v, b);
             list.tuple = false;
             return Value(std::move(list));
         }},
        {"lower",
         [](const Value& v, const Arguments&, Budget& b) { return cased(v, Case::lower, b); }},
        {"map", mapped},
        {"max",
         [](const Value& v, const Arguments& a, Budget& b) { return extreme(v, a, true, b); }},
        {"min",
         [](const Value& v, const Arguments& a, Budget& b) { return extreme(v, a, false, b); }},
        {"reject", [](const Value& v, const Arguments& a,
                      Budget& b) { return selected(v, a, false, false, b); }},
        {"rejectattr", [](const Value& v, const Arguments& a,
                          Budget& b) { return selected(v, a, false, true, b); }},
        {"replace", replaced},
        {"reverse", [](const Value& v, const Arguments&, Budget& b) { return reversed(v, b); }},
        {"round", rounded},
        {"safe", [](const Value& v, const Arguments&, Budget&) { return v; }},
        {"select", [](const Value& v, const Arguments& a,
                      Budget& b) { return selected(v, a, true, false, b); }},
        {"selectattr", [](const Value& v, const Arguments& a,
                          Budget& b) { return selected(v, a, true, true, b); }},
        {"slice", sliced},
        {"sort", sorted},
        {"sum", summed},
        {"string",
         [](const Value& v, const Arguments&, Budget& b) { return Value(to_text(v, b)); }},
        {"title", [](const Value& v, const Arguments&,
                     Budget& b) { return cased(v, Case::filter_title, b); }},
        {"tojson", to_tojson},
        {"trim",
         [](const Value& v, const Arguments& a, Budget& b) {
             const Value characters = a.get(0, "chars");
             std::optional<std::string> set;
             if (characters.is_string()) set = characters.string()->text();
             const MarkedText text = to_text(v, b);
             b.pass(text.size());
             return Value(strip(text, set, true, true));
         }},
        {"unique", unique},
        {"upper",
         [](const Value& v, const Arguments&, Budget& b) { return cased(v, Case::upper, b); }},
        {"wordcount", word_count},
    };
    return table;
}

// value % by, with the divisor's sign.
double rest(const Value& value, double by) {
    const std::optional<double> number = value.number();
    if (!number) fail(std::string("the test needs a number, not ") + value.kind());
    // Whole numbers beyond a double's are exact too.
    if (value.integer() && std::fabs(by) < 9e18 && by == std::trunc(by))
        return static_cast<double>(std::llabs(*value.integer() % static_cast<std::int64_t>(by)));
    const double left = std::fmod(*number, by);
    return left != 0 && (left < 0) != (by < 0) ? left + by : left;
}

template <typename Relation>
bool ordered(const Value& value, const Arguments& arguments, Budget& budget, Relation relation) {
    return relation(compare(value, arguments.get(0, "other"), budget), 0);
}

const std::map<std::string_view, Test>& tests() {
    static const Test equals = [](const Value& v, const Arguments& a, Budget& b) {
        return equal(v, a.get(0, "other"), b);
    };
    static const std::map<std::string_view, Test> table = {
        {"defined", [](const Value& v, const Arguments&, Budget&) { return !v.is_undefined(); }},
        {"undefined", [](const Value& v, const Arguments&, Budget&) { return v.is_undefined(); }},
        {"none", [](const Value& v, const Arguments&, Budget&) { return v.is_none(); }},
        {"string", [](const Value& v, const Arguments&, Budget&) { return v.is_string(); }},
        {"mapping", [](const Value& v, const Arguments&, Budget&) { return v.dict() != nullptr; }},
        {"sequence",
         [](const Value& v, const Arguments&, Budget&) {
             return v.is_string() || v.list() != nullptr || v.dict() != nullptr || v.is_undefined();
         }},
        {"iterable",
         [](const Value& v, const Arguments&, Budget&) {
             return v.is_string() || v.list() != nullptr || v.dict() != nullptr || v.is_undefined();
         }},
        {"number", [](const Value& v, const Arguments&, Budget&) { return v.is_number(); }},
        {"integer", [](const Value& v, const Arguments&, Budget&) { return v.is_int(); }},
        {"float", [](const Value& v, const Arguments&, Budget&) { return v.is_float(); }},
        {"boolean", [](const Value& v, const Arguments&, Budget&) { return v.is_bool(); }},
        {"true",
         [](const Value& v, const Arguments&, Budget&) { return v.is_bool() && v.truthy(); }},
        {"false",
         [](const Value& v, const Arguments&, Budget&) { return v.is_bool() && !v.truthy(); }},
        {"callable", [](const Value& v, const Arguments&, Budget&) { return v.is_callable(); }},
        {"odd", [](const Value& v, const Arguments&, Budget&) { return rest(v, 2) == 1; }},
        {"even", [](const Value& v, const Arguments&, Budget&) { return rest(v, 2) == 0; }},
        {"divisibleby",
         [](const Value& v, const Arguments& a, Budget&) {
             const std::optional<double> by = a.get(0, "num").number();
             if (!by || *by == 0) fail("\"divisibleby\" needs a number other than 0");
             return rest(v, *by) == 0;
         }},
        {"lower",
         [](const Value& v, const Arguments&, Budget& b) {
             const MarkedText text = to_text(v, b);
             b.pass(text.size());
             return text.text() == change_case(text, Case::lower).text() &&
                    text.text() != change_case(text, Case::upper).text();
         }},
        {"upper",
         [](const Value& v, const Arguments&, Budget& b) {
             const MarkedText text = to_text(v, b);
             b.pass(text.size());
             return text.text() == change_case(text, Case::upper).text() &&
                    text.text() != change_case(text, Case::lower).text();
         }},
        {"eq", equals},
        {"equalto", equals},
        {"sameas", equals},
        {"ne", [](const Value& v, const Arguments& a,
                  Budget& b) { return !equal(v, a.get(0, "other"), b); }},
        {"in", [](const Value& v, const Arguments& a,
                  Budget& b) { return contains(a.get(0, "seq"), v, b); }},
        {"lt", [](const Value& v, const Arguments& a,
                  Budget& b) { return ordered(v, a, b, std::less<>{}); }},
        {"le", [](const Value& v, const Arguments& a,
                  Budget& b) { return ordered(v, a, b, std::less_equal<>{}); }},
        {"gt", [](const Value& v, const Arguments& a,
                  Budget& b) { return ordered(v, a, b, std::greater<>{}); }},
        {"ge", [](const Value& v, const Arguments& a,
                  Budget& b) { return ordered(v, a, b, std::greater_equal<>{}); }},
        {"escaped", [](const Value&, const Arguments&, Budget&) { return false; }},
        {"filter", [](const Value& v, const Arguments&,
                      Budget&) { return v.is_string() && is_filter(v.string()->text()); }},
        {"test", [](const Value& v, const Arguments&,
                    Budget&) { return v.is_string() && is_test(v.string()->text()); }},
    };
    return table;
}

}  // namespace

Value Arguments::get(std::size_t place, std::string_view name, Value otherwise) const {
    if (place < positional.size()) return positional[place];
    for (const auto& [given, value] : named)
        if (given == name) return value;
    return otherwise;
}

bool is_filter(std::string_view name) {
    return filters().contains(name);
}

Value apply_filter(std::string_view name, const Value& subject, const Arguments& arguments,
                   Budget& budget) {
    const Budget::Level level(budget);
    budget.step();
    return filters().at(name)(subject, arguments, budget);
}

namespace {

// Names that only selectattr and its like can write.
std::string_view spelled_out(std::string_view name) {
    constexpr std::pair<std::string_view, std::string_view> kOther[] = {
        {"==", "eq"}, {"!=", "ne"}, {"<", "lt"},           {"lessthan", "lt"},
        {"<=", "le"}, {">", "gt"},  {"greaterthan", "gt"}, {">=", "ge"}};
    for (const auto& [other, known] : kOther)
        if (name == other) return known;
    return name;
}

}  // namespace

bool is_test(std::string_view name) {
    return tests().contains(spelled_out(name));
}

bool apply_test(std::string_view name, const Value& subject, const Arguments& arguments,
                Budget& budget) {
    budget.step();
    return tests().at(spelled_out(name))(subject, arguments, budget);
}

}  // namespace garam::jinja
