#include "garam/text/jinja/collection_filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "garam/text/jinja/methods.h"
#include "garam/text/jinja/operators.h"
#include "garam/text/unicode.h"

namespace garam::jinja {
namespace {

// By what an item is compared: an attribute of it, texts without case unless asked for.
Value key_of(const Value& item, const Value& path, bool case_sensitive, Budget& budget) {
    Value key = item;
    if (path.is_string()) key = attribute_path(item, path.string()->text(), budget);
    if (path.integer()) key = jinja::item(item, path, budget);
    if (key.is_string() && !case_sensitive) {
        budget.pass(key.string()->size());
        return change_case(*key.string(), Case::lower);
    }
    return key;
}

struct Keyed {
    Value key;
    Value item;
};

std::vector<Keyed> keyed(const Value& value, const Value& path, bool case_sensitive,
                         Budget& budget) {
    const auto items = iterate(value, budget);
    std::vector<Keyed> out;
    budget.bytes(items->items.size() * sizeof(Keyed));
    out.reserve(items->items.size());
    for (const Value& item : items->items)
        out.push_back({key_of(item, path, case_sensitive, budget), item});
    return out;
}

int order_of(const Value& a, const Value& b, Budget& budget) {
    budget.step();
    if (a.list() != nullptr && b.list() != nullptr) {
        const auto& x = a.list()->items;
        const auto& y = b.list()->items;
        for (std::size_t i = 0; i < x.size() && i < y.size(); ++i)
            if (const int order = order_of(x[i], y[i], budget); order != 0) return order;
        return x.size() < y.size() ? -1 : x.size() > y.size();
    }
    return compare(a, b, budget);
}

// Stable, and stops at once where two values have no order.
void sort_by_key(std::vector<Keyed>& entries, bool reverse, Budget& budget) {
    std::stable_sort(entries.begin(), entries.end(), [&](const Keyed& a, const Keyed& b) {
        const int order = order_of(a.key, b.key, budget);
        return reverse ? order > 0 : order < 0;
    });
}

Value list_of(std::vector<Keyed> entries) {
    List out;
    for (Keyed& entry : entries)
        out.items.push_back(std::move(entry.item));
    return out;
}

std::size_t count_of(const Value& value, const char* filter) {
    const auto count = value.integer();
    if (!count || *count < 1 || *count > 1'000'000)
        fail("\"" + std::string(filter) + "\" needs a count");
    return static_cast<std::size_t>(*count);
}

}  // namespace

Value attribute_path(const Value& value, const std::string& path, Budget& budget) {
    Value at = value;
    for (std::size_t begin = 0; begin <= path.size();) {
        const std::size_t end = std::min(path.find('.', begin), path.size());
        const std::string name = path.substr(begin, end - begin);
        std::int64_t index = 0;
        const auto [last, error] = std::from_chars(name.data(), name.data() + name.size(), index);
        const bool is_index =
            !name.empty() && error == std::errc() && last == name.data() + name.size();
        at = is_index ? item(at, Value(index), budget) : attribute(at, name, budget);
        begin = end + 1;
    }
    return at;
}

Value sorted(const Value& value, const Arguments& arguments, Budget& budget) {
    const bool reverse = arguments.get(0, "reverse", Value(false)).truthy();
    const bool case_sensitive = arguments.get(1, "case_sensitive", Value(false)).truthy();
    const Value path = arguments.get(2, "attribute", Value::none());
    if (path.is_string() && path.string()->text().find(',') != std::string::npos)
        fail("\"sort\" by several attributes is not supported");
    std::vector<Keyed> entries = keyed(value, path, case_sensitive, budget);
    sort_by_key(entries, reverse, budget);
    return list_of(std::move(entries));
}

Value dict_sorted(const Value& value, const Arguments& arguments, Budget& budget) {
    if (value.dict() == nullptr) fail("\"dictsort\" needs a dict");
    const bool case_sensitive = arguments.get(0, "case_sensitive", Value(false)).truthy();
    const Value by = arguments.get(1, "by", Value("key"));
    const bool reverse = arguments.get(2, "reverse", Value(false)).truthy();
    const std::string which = by.is_string() ? by.string()->text() : std::string();
    if (which != "key" && which != "value") fail("\"dictsort\" goes by key or value");
    std::vector<Keyed> entries =
        keyed(dict_items(*value.dict()), Value(std::int64_t{which == "key" ? 0 : 1}),
              case_sensitive, budget);
    sort_by_key(entries, reverse, budget);
    return list_of(std::move(entries));
}

Value unique(const Value& value, const Arguments& arguments, Budget& budget) {
    const bool case_sensitive = arguments.get(0, "case_sensitive", Value(false)).truthy();
    std::vector<Keyed> kept;
    for (Keyed& entry :
         keyed(value, arguments.get(1, "attribute", Value::none()), case_sensitive, budget)) {
        const bool known = std::any_of(kept.begin(), kept.end(), [&](const Keyed& other) {
            return equal(other.key, entry.key, budget);
        });
        if (!known) kept.push_back(std::move(entry));
    }
    return list_of(std::move(kept));
}

Value grouped(const Value& value, const Arguments& arguments, Budget& budget) {
    const Value path = arguments.get(0, "attribute");
    const bool case_sensitive = arguments.get(2, "case_sensitive", Value(false)).truthy();
    if (!path.is_string() && !path.integer()) fail("\"groupby\" needs an attribute");
    if (!arguments.get(1, "default", Value::none()).is_none())
        fail("\"groupby\" with a default is not supported");
    std::vector<Keyed> entries = keyed(value, path, case_sensitive, budget);
    sort_by_key(entries, false, budget);
    List out;
    for (std::size_t begin = 0; begin < entries.size();) {
        std::size_t end = begin;
        List members;
        while (end < entries.size() && order_of(entries[end].key, entries[begin].key, budget) == 0)
            members.items.push_back(entries[end++].item);
        List pair;
        pair.tuple = true;
        // The group is named as its first member has it.
        pair.items = {key_of(entries[begin].item, path, true, budget), Value(std::move(members))};
        out.items.emplace_back(std::move(pair));
        begin = end;
    }
    return out;
}

Value extreme(const Value& value, const Arguments& arguments, bool largest, Budget& budget) {
    const bool case_sensitive = arguments.get(0, "case_sensitive", Value(false)).truthy();
    std::vector<Keyed> entries =
        keyed(value, arguments.get(1, "attribute", Value::none()), case_sensitive, budget);
    if (entries.empty()) return Value::undefined("an item of an empty list");
    std::size_t best = 0;
    for (std::size_t i = 1; i < entries.size(); ++i) {
        const int order = order_of(entries[i].key, entries[best].key, budget);
        if (largest ? order > 0 : order < 0) best = i;
    }
    return entries[best].item;
}

Value summed(const Value& value, const Arguments& arguments, Budget& budget) {
    const Value path = arguments.get(0, "attribute", Value::none());
    Value sum = arguments.get(1, "start", Value(std::int64_t{0}));
    const auto listed = iterate(value, budget);
    for (const Value& item : listed->items) {
        if (sum.is_string()) fail("\"sum\" adds no texts");
        sum = apply_binary("+", sum, key_of(item, path, true, budget), budget);
    }
    return sum;
}

Value rounded(const Value& value, const Arguments& arguments, Budget&) {
    const auto number = value.number();
    if (!number) fail(std::string("\"round\" needs a number, not ") + value.kind());
    const std::int64_t precision =
        arguments.get(0, "precision", Value(std::int64_t{0})).integer().value_or(0);
    if (precision < -15 || precision > 15) fail("\"round\" to that many digits");
    const Value method = arguments.get(1, "method", Value("common"));
    const std::string how = method.is_string() ? method.string()->text() : std::string();
    const double scale = std::pow(10.0, static_cast<double>(precision));
    if (how == "common") {
        if (value.integer()) {
            // Python's round of an int stays one.
            if (precision >= 0) return *value.integer();
            fail("\"round\" of a whole number to tens is not supported");
        }
        // Correctly rounded from the decimal digits, ties to even only where the double is one.
        char buffer[64];
        if (precision < 0) return std::nearbyint(*number * scale) / scale;
        const auto end = std::to_chars(buffer, buffer + sizeof(buffer), *number,
                                       std::chars_format::fixed, static_cast<int>(precision));
        if (end.ec != std::errc()) return *number;
        double out = 0;
        std::from_chars(buffer, end.ptr, out);
        return out;
    }
    if (how == "ceil") return std::ceil(*number * scale) / scale;
    if (how == "floor") return std::floor(*number * scale) / scale;
    fail("\"round\" is common, ceil or floor");
}

Value batched(const Value& value, const Arguments& arguments, Budget& budget) {
    const std::size_t count = count_of(arguments.get(0, "linecount"), "batch");
    const Value fill = arguments.get(1, "fill_with", Value::none());
    List out;
    const auto items = iterate(value, budget);
    for (std::size_t at = 0; at < items->items.size(); at += count) {
        List row;
        for (std::size_t i = at; i < std::min(at + count, items->items.size()); ++i)
            row.items.push_back(items->items[i]);
        while (!fill.is_none() && row.items.size() < count)
            row.items.push_back(fill);
        out.items.emplace_back(std::move(row));
    }
    return out;
}

Value sliced(const Value& value, const Arguments& arguments, Budget& budget) {
    const std::size_t count = count_of(arguments.get(0, "slices"), "slice");
    const Value fill = arguments.get(1, "fill_with", Value::none());
    const auto items = iterate(value, budget);
    const std::size_t each = items->items.size() / count;
    const std::size_t longer = items->items.size() % count;
    List out;
    std::size_t at = 0;
    for (std::size_t s = 0; s < count; ++s) {
        List part;
        for (const std::size_t end = at + each + (s < longer ? 1 : 0); at < end; ++at)
            part.items.push_back(items->items[at]);
        if (!fill.is_none() && s >= longer) part.items.push_back(fill);
        out.items.emplace_back(std::move(part));
    }
    return out;
}

// Runs of letters, digits and underscores.
Value word_count(const Value& value, const Arguments&, Budget& budget) {
    const MarkedText text = to_text(value, budget);
    budget.pass(text.size());
    std::int64_t count = 0;
    bool within = false;
    for (std::size_t at = 0; at < text.size();) {
        const char32_t c = next_code_point(text.text(), at);
        const bool word = is_word_character(c);
        count += word && !within ? 1 : 0;
        within = word;
    }
    return count;
}

}  // namespace garam::jinja
