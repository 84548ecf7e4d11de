// Python's operators on template values. Throw Failure for what Python refuses.
#pragma once

#include <string_view>

#include "garam/text/jinja/value.h"

namespace garam::jinja {

// + - * / // % **
Value apply_binary(std::string_view op, const Value& left, const Value& right, Budget& budget);
// == != < <= > >= in, not in
bool apply_comparison(std::string_view op, const Value& left, const Value& right, Budget& budget);
Value negate(const Value& value);

}  // namespace garam::jinja
