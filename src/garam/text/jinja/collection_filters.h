// Filters that order, group or sum up what they are given.
#pragma once

#include <string>

#include "garam/text/jinja/filters.h"
#include "garam/text/jinja/value.h"

namespace garam::jinja {

// "a.b" is the attribute b of the attribute a, "0" an index.
Value attribute_path(const Value& value, const std::string& path, Budget& budget);

Value batched(const Value& value, const Arguments& arguments, Budget& budget);
Value dict_sorted(const Value& value, const Arguments& arguments, Budget& budget);
Value extreme(const Value& value, const Arguments& arguments, bool largest, Budget& budget);
Value grouped(const Value& value, const Arguments& arguments, Budget& budget);
Value rounded(const Value& value, const Arguments& arguments, Budget& budget);
Value sliced(const Value& value, const Arguments& arguments, Budget& budget);
Value sorted(const Value& value, const Arguments& arguments, Budget& budget);
Value summed(const Value& value, const Arguments& arguments, Budget& budget);
Value unique(const Value& value, const Arguments& arguments, Budget& budget);
Value word_count(const Value& value, const Arguments& arguments, Budget& budget);

}  // namespace garam::jinja
