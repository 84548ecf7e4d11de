// The filters ({{ value | name }}) and tests ({% if value is name %}) of Jinja2 that are supported.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "garam/text/jinja/value.h"

namespace garam::jinja {

struct Arguments {
    std::vector<Value> positional;
    std::vector<std::pair<std::string, Value>> named;

    // The argument at that place or of that name, else `otherwise`.
    Value get(std::size_t place, std::string_view name, Value otherwise = {}) const;
};

bool is_filter(std::string_view name);
// Throws Failure for values or arguments that the filter cannot take.
Value apply_filter(std::string_view name, const Value& subject, const Arguments& arguments,
                   Budget& budget);

bool is_test(std::string_view name);
bool apply_test(std::string_view name, const Value& subject, const Arguments& arguments,
                Budget& budget);

}  // namespace garam::jinja
