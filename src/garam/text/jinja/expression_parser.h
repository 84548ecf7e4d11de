// The expressions of a template, with Jinja2's precedence.
//
// Filters, tests and methods that are not supported are refused with their line.
#pragma once

#include <utility>

#include "garam/text/jinja/syntax.h"
#include "garam/text/jinja/token_cursor.h"

namespace garam::jinja {

constexpr int kMaxHeight = 256;  // of an expression's tree: a chain of so many operators

class ExpressionParser : public TokenCursor {
  public:
    using TokenCursor::TokenCursor;

    // Several with commas between are a tuple. Without `conditional`, an "if" behind it is left alone.
    ExpressionPtr parse_tuple_or_expression(bool conditional = true);
    ExpressionPtr parse_expression(bool conditional = true);

  protected:
    ExpressionPtr parse_filters(ExpressionPtr node);
    // A filter's name and arguments, applied to `node`.
    ExpressionPtr parse_filter(ExpressionPtr node);
    ExpressionPtr block_text() const;
    ExpressionPtr make(ExpressionKind kind, int at, std::string text = {}) const;

  private:
    // From loose to tight.
    ExpressionPtr parse_or();
    ExpressionPtr parse_and();
    ExpressionPtr parse_not();
    ExpressionPtr parse_compare();
    ExpressionPtr parse_sum();
    ExpressionPtr parse_concat();
    ExpressionPtr parse_product();
    ExpressionPtr parse_power();
    ExpressionPtr parse_unary(bool with_filters);
    ExpressionPtr parse_primary();
    ExpressionPtr parse_number();
    ExpressionPtr parse_postfix(ExpressionPtr node);
    ExpressionPtr parse_subscript(ExpressionPtr node, int at);
    void parse_arguments(Expression& into);
    ExpressionPtr parse_call(ExpressionPtr callee, int at);
    ExpressionPtr parse_test(ExpressionPtr node, int at);

    // Sets the height of the tree, from its parts.
    static void measure(Expression& node);
    template <typename... Operands>
    ExpressionPtr join(ExpressionKind kind, int at, std::string text, Operands... operands) const {
        ExpressionPtr node = make(kind, at, std::move(text));
        (node->operands.push_back(std::move(operands)), ...);
        measure(*node);
        return node;
    }

    int expression_depth_ = 0;
};

}  // namespace garam::jinja
