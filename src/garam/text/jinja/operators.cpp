#include "garam/text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "garam/text/jinja/methods.h"

namespace garam::jinja {
namespace {

[[noreturn]] void refuse(std::string_view op, const Value& left, const Value& right) {
    if (left.is_undefined()) fail(left.undefined_name() + " is undefined");
    if (right.is_undefined()) fail(right.undefined_name() + " is undefined");
    fail("\"" + std::string(op) + "\" of " + left.kind() + " and " + right.kind() +
         " is not possible");
}

[[noreturn]] void too_large() {
    fail("a number grows beyond 64 bits");
}

Value power(std::int64_t base, std::int64_t exponent) {
    std::int64_t result = 1;
    for (std::int64_t i = 0; i < exponent; ++i) {
        if (__builtin_mul_overflow(result, base, &result)) too_large();
        if (result == 0 || (result == 1 && base == 1)) break;
        if (base == -1) return (exponent % 2 == 0) ? std::int64_t{1} : std::int64_t{-1};
    }
    return result;
}

Value whole_numbers(std::string_view op, std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    bool overflow = false;
    if (op == "+") {
        overflow = __builtin_add_overflow(a, b, &result);
    } else if (op == "-") {
        overflow = __builtin_sub_overflow(a, b, &result);
    } else if (op == "*") {
        overflow = __builtin_mul_overflow(a, b, &result);
    } else if (op == "**") {
        if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
        return power(a, b);
    } else {
        if (b == 0) fail("division by zero");
        if (op == "/") return static_cast<double>(a) / static_cast<double>(b);
        if (b == -1) {  // the one quotient that overflows
            if (op == "%") return std::int64_t{0};
            overflow = __builtin_sub_overflow(std::int64_t{0}, a, &result);
        } else {
            // Python rounds down, so the remainder has the divisor's sign.
            const std::int64_t rest = a % b;
            const bool down = rest != 0 && (a < 0) != (b < 0);
            result = op == "//" ? a / b - (down ? 1 : 0) : rest + (down ? b : 0);
        }
    }
    if (overflow) too_large();
    return result;
}

Value real_numbers(std::string_view op, double a, double b) {
    if (op == "+") return a + b;
    if (op == "-") return a - b;
    if (op == "*") return a * b;
    if (op == "**") return std::pow(a, b);
    if (b == 0) fail("division by zero");
    if (op == "/") return a / b;
    if (op == "//") return std::floor(a / b);
    const double rest = std::fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Value repeated(const Value& value, std::int64_t times, Budget& budget) {
    const std::size_t unit = std::max<std::size_t>(
        1, value.is_string() ? value.string()->size() : value.list()->items.size() * sizeof(Value));
    if (times > 0 && unit > Budget::kMaxText / static_cast<std::size_t>(times))
        fail("a text or list grows beyond 64 MiB");
    MarkedText text;
    List list;
    for (std::int64_t i = 0; i < times; ++i) {
        budget.step();
        if (value.is_string()) {
            text.append(*value.string());
        } else {
            const auto& items = value.list()->items;
            list.items.insert(list.items.end(), items.begin(), items.end());
        }
    }
    if (value.is_string()) return text;
    return list;
}

}  // namespace

Value apply_binary(std::string_view op, const Value& left, const Value& right, Budget& budget) {
    const auto a = left.integer();
    const auto b = right.integer();
    if (a && b) return whole_numbers(op, *a, *b);
    if (left.number() && right.number()) return real_numbers(op, *left.number(), *right.number());
    if (op == "+") {
        if (left.is_string() && right.is_string()) {
            budget.pass(left.string()->size() + right.string()->size());
            MarkedText sum = *left.string();
            sum.append(*right.string());
            return sum;
        }
        if (left.list() != nullptr && right.list() != nullptr &&
            left.list()->tuple == right.list()->tuple) {
            const std::size_t count = left.list()->items.size() + right.list()->items.size();
            if (count > Budget::kMaxText / sizeof(Value)) fail("a list grows beyond 64 MiB");
            budget.pass(count * sizeof(Value));
            List sum = *left.list();
            sum.items.insert(sum.items.end(), right.list()->items.begin(),
                             right.list()->items.end());
            return sum;
        }
    }
    if (op == "*") {
        const auto repeatable = [](const Value& value) {
            return value.is_string() || value.list() != nullptr;
        };
        if (repeatable(left) && b) return repeated(left, *b, budget);
        if (repeatable(right) && a) return repeated(right, *a, budget);
    }
    if (op == "%" && left.is_string()) return format_percent(*left.string(), right, budget);
    refuse(op, left, right);
}

bool apply_comparison(std::string_view op, const Value& left, const Value& right, Budget& budget) {
    if (op == "==") return equal(left, right, budget);
    if (op == "!=") return !equal(left, right, budget);
    if (op == "in") return contains(right, left, budget);
    if (op == "not in") return !contains(right, left, budget);
    const int order = compare(left, right, budget);
    if (op == "<") return order < 0;
    if (op == "<=") return order <= 0;
    if (op == ">") return order > 0;
    return order >= 0;
}

Value negate(const Value& value) {
    if (const auto whole = value.integer()) {
        if (*whole == INT64_MIN) too_large();
        return -*whole;
    }
    if (const auto number = value.number()) return -*number;
    fail(std::string("\"-\" of ") + value.kind() + " is not possible");
}

}  // namespace garam::jinja
