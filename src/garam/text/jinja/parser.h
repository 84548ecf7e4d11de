// Template source to syntax tree, with Jinja2's grammar.
//
// What the evaluator does not support (tags, filters, tests, methods) is refused here already, with its
// line. Throws SyntaxFailure.
#pragma once

#include <string_view>

#include "garam/text/jinja/lexer.h"
#include "garam/text/jinja/syntax.h"

namespace garam::jinja {

Block parse(std::string_view source);

}  // namespace garam::jinja
