// The methods of Python's str and dict that are supported, and the text functions that filters share.
#pragma once

#include <optional>
#include <string_view>

#include "garam/text/jinja/filters.h"
#include "garam/text/jinja/value.h"

namespace garam::jinja {

bool is_method(std::string_view name);
// value.name(arguments). Throws Failure when the value has no such method.
Value call_method(const Value& value, std::string_view name, const Arguments& arguments,
                  Budget& budget);

// str.strip and its halves; without `characters`: white space.
MarkedText strip(const MarkedText& text, const std::optional<std::string>& characters, bool left,
                 bool right);
enum class Case { upper, lower, capitalize, title, filter_title, swap };
MarkedText change_case(const MarkedText& text, Case to);
// Up to `count` times; a negative one: everywhere.
MarkedText replace(const MarkedText& text, const MarkedText& from, const MarkedText& to,
                   std::int64_t count, Budget& budget);
MarkedText join(const List& list, const MarkedText& separator, Budget& budget);
// str.splitlines, whose line ends are more than \n.
List split_lines(const MarkedText& text);
// str.format with {}, {0} and {name}; no formats behind a colon.
Value format_text(const MarkedText& text, const Arguments& arguments, Budget& budget);
// text % value with %s, %d and %%.
Value format_percent(const MarkedText& text, const Value& value, Budget& budget);
// (key, value) tuples.
Value dict_items(const Dict& dict);

}  // namespace garam::jinja
