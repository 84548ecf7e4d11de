#include "garam/text/jinja/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

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
    const MarkedText text = to_text(value, budget);
    MarkedText out;
    for (std::size_t at = 0;;) {
        const std::size_t end = std::min(text.text().find('\n', at), text.size());
        const bool leading = at == 0 ? first : (blank || end > at);
        if (leading) out.append_plain(by);
        out.append(text, at, end);
        if (out.size() > Budget::kMaxText) fail("a text grows beyond 64 MiB");
        if (end == text.size()) break;
        out.append_plain("\n");
        at = end + 1;
    }
    budget.text(out.size());
    return out;
}

Value ends_of(const Value& value, bool last, Budget& budget) {
    const auto items = iterate(value, budget);
    if (items->items.empty()) return Value::undefined(last ? "the last item" : "the first item");
    return last ? items->items.back() : items->items.front();
}

Value reversed(const Value& value, Budget& budget) {
    List out = *iterate(value, budget);
    budget.bytes(out.items.size() * sizeof(Value));
    std::reverse(out.items.begin(), out.items.end());
    if (!value.is_string()) return out;
    return join(out, MarkedText(), budget);
}

// "a.b" is the attribute b of the attribute a.
Value attribute_path(const Value& value, const std::string& path, Budget& budget) {
    Value at = value;
    for (std::size_t begin = 0; begin <= path.size();) {
        const std::size_t end = std::min(path.find('.', begin), path.size());
        const std::string name = path.substr(begin, end - begin);
        const auto index = parsed<std::int64_t>(name);
        at = index ? item(at, Value(*index), budget) : attribute(at, name, budget);
        begin = end + 1;
    }
    return at;
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
    const auto items = iterate(value, budget);
    for (const Value& entry : items->items) {
        const Value tested = by_attribute ? attribute_path(entry, path, budget) : entry;
        const bool passes = test.is_undefined()
                                ? tested.truthy()
                                : apply_test(test.string()->text(), tested, rest, budget);
        if (passes == wanted) out.items.push_back(entry);
    }
    budget.bytes(out.items.size() * sizeof(Value));
    return out;
}

Value mapped(const Value& value, const Arguments& arguments, Budget& budget) {
    const Value named = arguments.get(arguments.positional.size(), "attribute");
    const Value otherwise = arguments.get(arguments.positional.size(), "default");
    List out;
    const auto items = iterate(value, budget);
    for (const Value& entry : items->items) {
        if (named.is_string()) {
            const Value got = attribute_path(entry, named.string()->text(), budget);
            out.items.push_back(got.is_undefined() ? otherwise : got);
            continue;
        }
        const Value filter = arguments.get(0, "");
        if (!filter.is_string() || !is_filter(filter.string()->text()))
            fail("\"map\" needs a filter's name or attribute=");
        Arguments rest;
        rest.positional.assign(arguments.positional.begin() + 1, arguments.positional.end());
        rest.named = arguments.named;
        out.items.push_back(apply_filter(filter.string()->text(), entry, rest, budget));
    }
    budget.bytes(out.items.size() * sizeof(Value));
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
    budget.text(text.size());
    return change_case(text, to);
}

Value to_tojson(const Value& value, const Arguments& arguments, Budget& budget) {
    for (const auto& [name, given] : arguments.named) {
        if (name != "indent" && name != "ensure_ascii")
            fail("\"tojson\" with \"" + name + "\" is not supported");
        if (name == "ensure_ascii" && given.truthy())
            fail("\"tojson\" with ensure_ascii is not supported");
    }
    const Value given = arguments.get(arguments.positional.size(), "indent");
    return to_json(value,
                   static_cast<int>(std::clamp<std::int64_t>(given.integer().value_or(-1), -1, 33)),
                   budget);
}

const std::map<std::string_view, Filter>& filters() {
    static const std::map<std::string_view, Filter> table = {
        {"abs", absolute},
        {"capitalize",
         [](const Value& v, const Arguments&, Budget& b) { return cased(v, Case::capitalize, b); }},
        {"count", [](const Value& v, const Arguments&, Budget& b) { return Value(length(v, b)); }},
        {"d", to_default},
        {"default", to_default},
        {"first", [](const Value& v, const Arguments&, Budget& b) { return ends_of(v, false, b); }},
        {"float",
         [](const Value& v, const Arguments& a, Budget&) {
             const auto number = float_of(v);
             return number ? Value(*number) : a.get(0, "default", Value(0.0));
         }},
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
             b.bytes(list.items.size() * sizeof(Value));
             return Value(std::move(list));
         }},
        {"lower",
         [](const Value& v, const Arguments&, Budget& b) { return cased(v, Case::lower, b); }},
        {"map", mapped},
        {"reject", [](const Value& v, const Arguments& a,
                      Budget& b) { return selected(v, a, false, false, b); }},
        {"rejectattr", [](const Value& v, const Arguments& a,
                          Budget& b) { return selected(v, a, false, true, b); }},
        {"replace", replaced},
        {"reverse", [](const Value& v, const Arguments&, Budget& b) { return reversed(v, b); }},
        {"safe", [](const Value& v, const Arguments&, Budget&) { return v; }},
        {"select", [](const Value& v, const Arguments& a,
                      Budget& b) { return selected(v, a, true, false, b); }},
        {"selectattr", [](const Value& v, const Arguments& a,
                          Budget& b) { return selected(v, a, true, true, b); }},
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
             b.text(text.size());
             return Value(strip(text, set, true, true));
         }},
        {"upper",
         [](const Value& v, const Arguments&, Budget& b) { return cased(v, Case::upper, b); }},
    };
    return table;
}

std::int64_t whole(const Value& value) {
    const auto number = value.integer();
    if (!number) fail(std::string("the test needs a whole number, not ") + value.kind());
    return *number;
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
        {"odd", [](const Value& v, const Arguments&, Budget&) { return whole(v) % 2 != 0; }},
        {"even", [](const Value& v, const Arguments&, Budget&) { return whole(v) % 2 == 0; }},
        {"divisibleby",
         [](const Value& v, const Arguments& a, Budget&) {
             const std::int64_t by = whole(a.get(0, "num"));
             if (by == 0) fail("division by zero");
             return by == -1 || whole(v) % by == 0;
         }},
        {"lower",
         [](const Value& v, const Arguments&, Budget& b) {
             const MarkedText text = to_text(v, b);
             b.text(text.size());
             return text.text() == change_case(text, Case::lower).text() &&
                    text.text() != change_case(text, Case::upper).text();
         }},
        {"upper",
         [](const Value& v, const Arguments&, Budget& b) {
             const MarkedText text = to_text(v, b);
             b.text(text.size());
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

bool is_test(std::string_view name) {
    return tests().contains(name);
}

bool apply_test(std::string_view name, const Value& subject, const Arguments& arguments,
                Budget& budget) {
    budget.step();
    return tests().at(name)(subject, arguments, budget);
}

}  // namespace garam::jinja
