#include "garam/text/jinja/value.h"

#include <algorithm>

#include "garam/text/unicode.h"

namespace garam::jinja {
namespace {

constexpr std::size_t kCountBytes = 16;  // what std::make_shared puts beside an object

}  // namespace

const Value* Dict::find(std::string_view key) const {
    for (const auto& [name, value] : entries) {
        if (name == key) return &value;
    }
    return nullptr;
}

std::size_t held_bytes(const List& list) {
    return sizeof(List) + list.items.capacity() * sizeof(Value);
}
std::size_t held_bytes(const Dict& dict) {
    std::size_t bytes = sizeof(Dict) + dict.entries.capacity() * sizeof(dict.entries[0]);
    for (const auto& [key, value] : dict.entries)
        bytes += key.capacity();
    return bytes;
}

Value Value::undefined(std::string name) {
    Budget::charge(sizeof(std::string) + kCountBytes + name.capacity());
    return Value(Undefined{std::make_shared<const std::string>(std::move(name))});
}

namespace {

int checked_nesting(int inner) {
    if (inner >= Value::kMaxNesting) fail("lists are nested deeper than 64");
    return inner + 1;
}

}  // namespace

Value::Value(MarkedText text) {
    Budget::charge(sizeof(MarkedText) + kCountBytes + text.held_bytes());
    value_ = std::make_shared<const MarkedText>(std::move(text));
}

Value::Value(List list) {
    Budget::charge(kCountBytes + held_bytes(list));
    int inner = 0;
    for (const Value& item : list.items)
        inner = std::max(inner, item.nesting());
    list.depth = checked_nesting(inner);
    value_ = std::make_shared<const List>(std::move(list));
}

Value::Value(Dict dict) {
    Budget::charge(kCountBytes + held_bytes(dict));
    int inner = 0;
    for (const auto& [name, value] : dict.entries)
        inner = std::max(inner, value.nesting());
    dict.depth = checked_nesting(inner);
    value_ = std::make_shared<const Dict>(std::move(dict));
}

int Value::nesting() const {
    if (list() != nullptr) return list()->depth;
    if (dict() != nullptr) return dict()->depth;
    // A namespace may hold anything, itself included: it does not go into containers.
    return space() != nullptr || loop() != nullptr ? kMaxNesting : 0;
}

std::shared_ptr<const List> Value::shared_list() const {
    const auto* held = std::get_if<std::shared_ptr<const List>>(&value_);
    return held == nullptr ? nullptr : *held;
}

const Macro* Value::macro() const {
    const auto* held = std::get_if<const Macro*>(&value_);
    return held == nullptr ? nullptr : *held;
}

std::optional<std::int64_t> Value::integer() const {
    if (const auto* value = std::get_if<bool>(&value_)) return *value ? 1 : 0;
    if (const auto* value = std::get_if<std::int64_t>(&value_)) return *value;
    return std::nullopt;
}

std::optional<double> Value::number() const {
    if (const auto* value = std::get_if<double>(&value_)) return *value;
    if (const auto value = integer()) return static_cast<double>(*value);
    return std::nullopt;
}

const char* Value::kind() const {
    constexpr const char* kNames[] = {"undefined", "None", "bool",     "int",
                                      "float",     "str",  "list",     "dict",
                                      "namespace", "loop", "function", "macro"};
    return kNames[value_.index()];
}

std::string Value::undefined_name() const {
    const auto* undefined = std::get_if<Undefined>(&value_);
    return undefined != nullptr && undefined->name ? *undefined->name : std::string("a value");
}

bool Value::truthy() const {
    if (is_undefined() || is_none()) return false;
    if (const auto value = number()) return *value != 0;
    if (string() != nullptr) return string()->size() > 0;
    if (list() != nullptr) return !list()->items.empty();
    if (dict() != nullptr) return !dict()->entries.empty();
    return true;
}

namespace {

void charge_comparison(const Value& a, const Value& b, Budget& budget) {
    budget.scan(std::min(a.string()->size(), b.string()->size()));
}

}  // namespace

bool equal(const Value& a, const Value& b, Budget& budget) {
    budget.step();
    if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
    if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
    if (a.integer() && b.integer()) return *a.integer() == *b.integer();
    if (a.number() && b.number()) return *a.number() == *b.number();
    if (a.string() && b.string()) {
        charge_comparison(a, b, budget);
        return a.string()->text() == b.string()->text();
    }
    if (a.list() && b.list()) {
        const auto& x = a.list()->items;
        const auto& y = b.list()->items;
        if (x.size() != y.size() || a.list()->tuple != b.list()->tuple) return false;
        for (std::size_t i = 0; i < x.size(); ++i)
            if (!equal(x[i], y[i], budget)) return false;
        return true;
    }
    if (a.dict() && b.dict()) {
        if (a.dict()->entries.size() != b.dict()->entries.size()) return false;
        for (const auto& [key, value] : a.dict()->entries) {
            const Value* other = b.dict()->find(key);
            if (other == nullptr || !equal(value, *other, budget)) return false;
        }
        return true;
    }
    return a.space() != nullptr && a.space() == b.space();
}

int compare(const Value& a, const Value& b, Budget& budget) {
    budget.step();
    if (a.integer() && b.integer())
        return *a.integer() < *b.integer() ? -1 : *a.integer() > *b.integer();
    if (a.number() && b.number()) return *a.number() < *b.number() ? -1 : *a.number() > *b.number();
    if (a.string() && b.string()) {
        charge_comparison(a, b, budget);
        return a.string()->text().compare(b.string()->text());
    }
    fail(std::string("\"") + a.kind() + "\" and \"" + b.kind() + "\" have no order");
}

bool contains(const Value& container, const Value& value, Budget& budget) {
    budget.step();
    if (const MarkedText* text = container.string()) {
        if (!value.is_string()) fail(std::string("\"in\" a str needs a str, not ") + value.kind());
        budget.scan(text->size());
        return find_part(text->text(), value.string()->text()) != std::string::npos;
    }
    if (container.dict() != nullptr)
        return value.is_string() && container.dict()->find(value.string()->text()) != nullptr;
    const auto items = iterate(container, budget);
    for (const Value& entry : items->items)
        if (equal(entry, value, budget)) return true;
    return false;
}

std::shared_ptr<const List> iterate(const Value& value, Budget& budget) {
    if (auto list = value.shared_list()) return list;
    List out;
    if (const MarkedText* text = value.string()) {
        budget.pass(text->size());
        for (std::size_t at = 0; at < text->size();) {
            const std::size_t end = at + utf8_length(text->text()[at]);
            out.items.emplace_back(text->slice(at, end));
            at = end;
        }
    } else if (value.dict() != nullptr) {
        for (const auto& [key, entry] : value.dict()->entries)
            out.items.emplace_back(key);
    } else if (!value.is_undefined()) {
        fail(std::string("\"") + value.kind() + "\" cannot be iterated over");
    }
    return Value(std::move(out)).shared_list();
}

namespace {

Value loop_attribute(const Loop& loop, std::string_view name) {
    const auto& items = loop.items->items;
    const auto index = static_cast<std::int64_t>(loop.index);
    const auto count = static_cast<std::int64_t>(items.size());
    if (name == "index") return index + 1;
    if (name == "index0") return index;
    if (name == "revindex") return count - index;
    if (name == "revindex0") return count - index - 1;
    if (name == "first") return index == 0;
    if (name == "last") return index == count - 1;
    if (name == "length") return count;
    if (name == "depth") return std::int64_t{loop.depth};
    if (name == "depth0") return std::int64_t{loop.depth - 1};
    if (name == "previtem")
        return index > 0 ? items[loop.index - 1] : Value::undefined("loop.previtem");
    if (name == "nextitem")
        return index + 1 < count ? items[loop.index + 1] : Value::undefined("loop.nextitem");
    fail("\"loop." + std::string(name) + "\" is not supported");
}

// Where each character of a text begins, and where the last ends.
std::vector<std::size_t> character_offsets(const std::string& text, std::size_t count,
                                           Budget& budget) {
    budget.bytes((count + 1) * sizeof(std::size_t));
    std::vector<std::size_t> offsets;
    offsets.reserve(count + 1);
    for (std::size_t at = 0; at < text.size(); at += utf8_length(text[at]))
        offsets.push_back(at);
    offsets.push_back(text.size());
    return offsets;
}

// Where the character that is `count` behind the one at `at` begins; no further than the end.
std::size_t skip_characters(const std::string& text, std::size_t at, std::int64_t count,
                            Budget& budget) {
    const std::size_t begin = at;
    for (; count > 0 && at < text.size(); --count)
        at += utf8_length(text[at]);
    budget.pass(at - begin);
    return at;
}

// Where the character that is `count` from the end begins; nothing where there are fewer.
std::optional<std::size_t> character_from_end(const std::string& text, std::int64_t count,
                                              Budget& budget) {
    std::size_t at = text.size();
    for (; count > 0 && at > 0; --count) {
        --at;
        while (at > 0 && is_utf8_continuation(text[at]))
            --at;
    }
    budget.pass(text.size() - at);
    if (count > 0) return std::nullopt;
    return at;
}

}  // namespace

Value attribute(const Value& value, std::string_view name, Budget& budget) {
    budget.step();
    if (value.is_undefined())
        fail(value.undefined_name() + " is undefined, so it has no \"" + std::string(name) + "\"");
    if (value.loop() != nullptr) return loop_attribute(*value.loop(), name);
    const Dict* dict = value.space() != nullptr ? &value.space()->values : value.dict();
    if (dict != nullptr) {
        if (const Value* found = dict->find(name)) return *found;
    }
    return Value::undefined("\"" + std::string(name) + "\"");
}

Value item(const Value& value, const Value& key, Budget& budget) {
    if (key.is_string()) return attribute(value, key.string()->text(), budget);
    budget.step();
    if (value.is_undefined()) fail(value.undefined_name() + " is undefined, so it has no items");
    const auto index = key.integer();
    if (!index) fail(std::string("\"") + key.kind() + "\" cannot be an index");
    const auto place = [&](std::size_t count) -> std::optional<std::size_t> {
        const auto size = static_cast<std::int64_t>(count);
        const std::int64_t at = *index < 0 ? *index + size : *index;
        if (at < 0 || at >= size) return std::nullopt;
        return static_cast<std::size_t>(at);
    };
    if (value.list() != nullptr) {
        if (const auto at = place(value.list()->items.size())) return value.list()->items[*at];
    } else if (const MarkedText* text = value.string()) {
        const auto at = *index < 0 ? *index == INT64_MIN
                                         ? std::nullopt
                                         : character_from_end(text->text(), -*index, budget)
                                   : skip_characters(text->text(), 0, *index, budget);
        if (at && *at < text->size()) return text->slice(*at, *at + utf8_length(text->text()[*at]));
    }
    return Value::undefined("item " + std::to_string(*index));
}

Value slice(const Value& value, const Value& start, const Value& stop, const Value& step,
            Budget& budget) {
    const auto number = [&](const Value& bound) -> std::optional<std::int64_t> {
        if (bound.is_undefined() || bound.is_none()) return std::nullopt;
        const auto given = bound.integer();
        if (!given) fail("slice bounds must be whole numbers");
        return given;
    };
    if (value.list() == nullptr && value.string() == nullptr)
        fail(std::string("\"") + value.kind() + "\" cannot be sliced");
    const std::int64_t count = length(value, budget);
    // Python's rules (slice.indices).
    const std::int64_t stride = number(step).value_or(1);
    if (stride == 0) fail("a slice with a step of 0");
    const std::int64_t lowest = stride < 0 ? -1 : 0;
    const std::int64_t highest = stride < 0 ? count - 1 : count;
    const auto bound = [&](std::optional<std::int64_t> given, std::int64_t otherwise) {
        if (!given) return otherwise;
        if (*given < 0) return *given < -count ? lowest : std::max(*given + count, lowest);
        return std::min(*given, highest);
    };
    const std::int64_t first = bound(number(start), stride < 0 ? highest : lowest);
    const std::int64_t last = bound(number(stop), stride < 0 ? lowest : highest);
    if (value.string() != nullptr && stride == 1) {
        const std::string& text = value.string()->text();
        const std::size_t begin = skip_characters(text, 0, first, budget);
        return value.string()->slice(begin, skip_characters(text, begin, last - first, budget));
    }
    std::vector<std::size_t> offsets;
    if (value.string() != nullptr)
        offsets =
            character_offsets(value.string()->text(), static_cast<std::size_t>(count), budget);
    List items;
    MarkedText text;
    // Counts down what is left, since first + stride may overflow.
    const std::int64_t distance = stride > 0 ? last - first : first - last;
    const std::int64_t magnitude = stride > 0 ? stride : stride == INT64_MIN ? INT64_MAX : -stride;
    for (std::int64_t done = 0; done < distance;) {
        budget.step();
        const auto at = static_cast<std::size_t>(stride > 0 ? first + done : first - done);
        if (value.list() != nullptr) {
            items.items.push_back(value.list()->items[at]);
        } else {
            text.append(*value.string(), offsets[at], offsets[at + 1]);
        }
        if (magnitude >= distance - done) break;
        done += magnitude;
    }
    if (value.string() != nullptr) return text;
    items.tuple = value.list()->tuple;
    return items;
}

std::int64_t length(const Value& value, Budget& budget) {
    if (const MarkedText* text = value.string()) {
        budget.scan(text->size());
        return std::count_if(text->text().begin(), text->text().end(),
                             [](char c) { return !is_utf8_continuation(c); });
    }
    if (value.list() != nullptr) return static_cast<std::int64_t>(value.list()->items.size());
    if (value.dict() != nullptr) return static_cast<std::int64_t>(value.dict()->entries.size());
    if (value.is_undefined()) return 0;
    fail(std::string("\"") + value.kind() + "\" has no length");
}

}  // namespace garam::jinja
