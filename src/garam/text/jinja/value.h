// Values of a template, after Python's: undefined, None, bool, int, float, str, list, tuple, dict, and
// what Jinja adds (namespace, loop, functions). Immutable except namespaces; copies share.
//
// Values that are made are charged to the Budget at work. What walks through values, or makes them
// grow, counts its steps in one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "garam/text/jinja/budget.h"
#include "garam/text/jinja/marked_text.h"

namespace garam::jinja {

class Value;
struct Macro;      // jinja/syntax.h
struct Statement;  // jinja/syntax.h

struct List {
    std::vector<Value> items;
    bool tuple = false;
    int depth = 1;  // of nested containers, this one included
};
struct Dict {
    std::vector<std::pair<std::string, Value>> entries;
    int depth = 1;
    int message = -1;  // the message of the conversation that this is
    const Value* find(std::string_view key) const;
};
struct Namespace {
    Dict values;
};
// Bytes that the container itself holds, without what its values hold.
std::size_t held_bytes(const List& list);
std::size_t held_bytes(const Dict& dict);
// The `loop` of a for block.
struct Loop {
    std::shared_ptr<const List> items;
    std::size_t index = 0;                 // from 0
    int depth = 1;                         // of a recursive loop
    const Statement* recursive = nullptr;  // what loop(...) runs
    std::shared_ptr<List> seen;            // what loop.changed was last asked about
};
// `method` is a dict's method that is not called at once: it is there, and that is all.
enum class Function { range, make_namespace, dict, raise_exception, strftime_now, method };

class Value {
  public:
    static constexpr int kMaxNesting = 64;

    Value() = default;  // undefined
    static Value undefined(std::string name);
    static Value none() { return Value(None{}); }
    Value(bool value) : value_(value) {}
    Value(std::int64_t value) : value_(value) {}
    Value(double value) : value_(value) {}
    // Those that take memory charge it to the Budget at work; copies of a Value share it.
    Value(MarkedText text);
    Value(std::string text) : Value(MarkedText(std::move(text))) {}
    Value(const char* text) : Value(std::string(text)) {}
    // Throw Failure when nested too deeply.
    Value(List list);
    Value(Dict dict);
    Value(std::shared_ptr<const List> list) : value_(std::move(list)) {}
    Value(std::shared_ptr<Namespace> space) : value_(std::move(space)) {}
    Value(std::shared_ptr<const Loop> loop) : value_(std::move(loop)) {}
    Value(Function function) : value_(function) {}
    Value(const Macro* macro) : value_(macro) {}

    bool is_undefined() const { return std::holds_alternative<Undefined>(value_); }
    bool is_none() const { return std::holds_alternative<None>(value_); }
    bool is_bool() const { return std::holds_alternative<bool>(value_); }
    bool is_int() const { return std::holds_alternative<std::int64_t>(value_); }
    bool is_float() const { return std::holds_alternative<double>(value_); }
    bool is_number() const { return is_bool() || is_int() || is_float(); }
    bool is_string() const { return string() != nullptr; }
    bool is_callable() const { return function() != nullptr || macro() != nullptr; }

    // nullptr when it is something else.
    const MarkedText* string() const { return shared<const MarkedText>(); }
    const List* list() const { return shared<const List>(); }
    std::shared_ptr<const List> shared_list() const;
    const Dict* dict() const { return shared<const Dict>(); }
    Namespace* space() const { return shared<Namespace>(); }
    const Loop* loop() const { return shared<const Loop>(); }
    const Function* function() const { return std::get_if<Function>(&value_); }
    const Macro* macro() const;

    // bools count as 0 and 1.
    std::optional<std::int64_t> integer() const;
    std::optional<double> number() const;

    const char* kind() const;  // "str", "list", "undefined", …
    std::string undefined_name() const;
    // The place in the conversation of a message's dict, -1 for all else.
    int message() const { return dict() != nullptr ? dict()->message : -1; }
    int nesting() const;  // containers within
    bool truthy() const;

  private:
    struct Undefined {
        std::shared_ptr<const std::string> name;
    };
    struct None {};
    explicit Value(None none) : value_(none) {}
    explicit Value(Undefined undefined) : value_(std::move(undefined)) {}
    template <typename T>
    T* shared() const {
        const auto* held = std::get_if<std::shared_ptr<T>>(&value_);
        return held == nullptr ? nullptr : held->get();
    }

    std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const MarkedText>,
                 std::shared_ptr<const List>, std::shared_ptr<const Dict>,
                 std::shared_ptr<Namespace>, std::shared_ptr<const Loop>, Function, const Macro*>
        value_;
};

bool equal(const Value& a, const Value& b, Budget& budget);
// Negative, 0 or positive; throws Failure for values without an order.
int compare(const Value& a, const Value& b, Budget& budget);
bool contains(const Value& container, const Value& value, Budget& budget);

// str(value): what {{ value }} prints.
MarkedText to_text(const Value& value, Budget& budget);
// json.dumps(value, ...) with those arguments.
struct JsonStyle {
    std::optional<std::string> indent;  // none: one line
    bool ensure_ascii = false;
    bool sort_keys = false;
    std::string item_separator;
    std::string key_separator;
};
MarkedText to_json(const Value& value, const JsonStyle& style, Budget& budget);

// What a for loop sees; throws Failure for values that cannot be iterated.
std::shared_ptr<const List> iterate(const Value& value, Budget& budget);
// value.name, value[key]; undefined when absent.
Value attribute(const Value& value, std::string_view name, Budget& budget);
Value item(const Value& value, const Value& key, Budget& budget);
Value slice(const Value& value, const Value& start, const Value& stop, const Value& step,
            Budget& budget);
// len(value).
std::int64_t length(const Value& value, Budget& budget);

}  // namespace garam::jinja
