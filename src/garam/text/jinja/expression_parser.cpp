#include "garam/text/jinja/expression_parser.h"

#include <charconv>

#include "garam/text/jinja/filters.h"
#include "garam/text/jinja/methods.h"

namespace garam::jinja {

ExpressionPtr ExpressionParser::make(ExpressionKind kind, int at, std::string text) const {
    auto made = std::make_unique<Expression>();
    made->kind = kind;
    made->line = at;
    made->text = std::move(text);
    return made;
}
void ExpressionParser::measure(Expression& node) {
    int height = 0;
    const auto see = [&](const ExpressionPtr& part) {
        if (part != nullptr) height = std::max(height, part->height);
    };
    for (const auto& part : node.operands)
        see(part);
    for (const auto& part : node.arguments)
        see(part);
    for (const auto& [name, part] : node.named)
        see(part);
    node.height = height + 1;
    if (node.height > kMaxHeight)
        throw SyntaxFailure{node.line, "an expression chains more than 256 operators"};
}
ExpressionPtr ExpressionParser::parse_tuple_or_expression(bool conditional) {
    const int at = line();
    ExpressionPtr first = parse_expression(conditional);
    if (!is_op(",")) return first;
    ExpressionPtr tuple = join(ExpressionKind::tuple, at, "", std::move(first));
    while (skip_op(",")) {
        if (token().kind == TokenKind::variable_end || token().kind == TokenKind::block_end ||
            is_op(")"))
            break;
        tuple->operands.push_back(parse_expression(conditional));
    }
    measure(*tuple);
    return tuple;
}

ExpressionPtr ExpressionParser::parse_expression(bool conditional) {
    const Level level(expression_depth_, line());
    const int at = line();
    ExpressionPtr value = parse_or();
    while (conditional && skip_name("if")) {
        ExpressionPtr condition = parse_or();
        ExpressionPtr otherwise;
        if (skip_name("else")) otherwise = parse_expression();
        value = join(ExpressionKind::condition, at, "", std::move(value), std::move(condition),
                     std::move(otherwise));
    }
    return value;
}

ExpressionPtr ExpressionParser::parse_or() {
    ExpressionPtr left = parse_and();
    while (is_name("or")) {
        const int at = take().line;
        left = join(ExpressionKind::logical_or, at, "", std::move(left), parse_and());
    }
    return left;
}

ExpressionPtr ExpressionParser::parse_and() {
    ExpressionPtr left = parse_not();
    while (is_name("and")) {
        const int at = take().line;
        left = join(ExpressionKind::logical_and, at, "", std::move(left), parse_not());
    }
    return left;
}

ExpressionPtr ExpressionParser::parse_not() {
    if (!is_name("not")) return parse_compare();
    const Level level(expression_depth_, line());
    const int at = take().line;
    return join(ExpressionKind::logical_not, at, "", parse_not());
}

ExpressionPtr ExpressionParser::parse_compare() {
    const int at = line();
    ExpressionPtr first = parse_sum();
    ExpressionPtr chain;
    for (;;) {
        std::string op;
        for (const char* known : {"==", "!=", "<=", ">=", "<", ">"})
            if (is_op(known)) op = known;
        if (is_name("in")) op = "in";
        if (is_name("not") && ahead().kind == TokenKind::name && ahead().text == "in") {
            skip();
            op = "not in";
        }
        if (op.empty()) break;
        skip();
        if (!chain) chain = join(ExpressionKind::compare, at, "", std::move(first));
        chain->comparisons.push_back(op);
        chain->operands.push_back(parse_sum());
    }
    if (!chain) return first;
    measure(*chain);
    return chain;
}

ExpressionPtr ExpressionParser::parse_sum() {
    ExpressionPtr left = parse_concat();
    while (is_op("+") || is_op("-")) {
        const Token op = take();
        left = join(ExpressionKind::binary, op.line, op.text, std::move(left), parse_concat());
    }
    return left;
}

ExpressionPtr ExpressionParser::parse_concat() {
    const int at = line();
    ExpressionPtr first = parse_product();
    if (!is_op("~")) return first;
    ExpressionPtr chain = join(ExpressionKind::concat, at, "", std::move(first));
    while (skip_op("~"))
        chain->operands.push_back(parse_product());
    measure(*chain);
    return chain;
}

ExpressionPtr ExpressionParser::parse_product() {
    ExpressionPtr left = parse_power();
    while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
        const Token op = take();
        left = join(ExpressionKind::binary, op.line, op.text, std::move(left), parse_power());
    }
    return left;
}

ExpressionPtr ExpressionParser::parse_power() {
    ExpressionPtr left = parse_unary(true);
    while (is_op("**")) {
        const int at = take().line;
        left = join(ExpressionKind::binary, at, "**", std::move(left), parse_unary(true));
    }
    return left;
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
    ExpressionPtr node;
    if (is_op("-") || is_op("+")) {
        const Level level(expression_depth_, line());
        const Token op = take();
        node = join(op.text == "-" ? ExpressionKind::negate : ExpressionKind::plus, op.line, "",
                    parse_unary(false));
    } else {
        node = parse_postfix(parse_primary());
    }
    return with_filters ? parse_filters(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::parse_primary() {
    const int at = line();
    switch (token().kind) {
        case TokenKind::name: {
            const std::string name = take().text;
            const auto constant = [&](Value value) {
                ExpressionPtr node = make(ExpressionKind::constant, at);
                node->constant = std::move(value);
                return node;
            };
            if (name == "true" || name == "True") return constant(true);
            if (name == "false" || name == "False") return constant(false);
            if (name == "none" || name == "None") return constant(Value::none());
            return make(ExpressionKind::name, at, name);
        }
        case TokenKind::string: {
            std::string text = take().text;
            while (token().kind == TokenKind::string)
                text += take().text;
            ExpressionPtr node = make(ExpressionKind::constant, at);
            node->constant = Value(std::move(text));
            return node;
        }
        case TokenKind::integer:
        case TokenKind::real:
            return parse_number();
        case TokenKind::op:
            break;
        default:
            unexpected("an expression");
    }
    if (skip_op("(")) {
        if (skip_op(")")) return make(ExpressionKind::tuple, at);
        ExpressionPtr inner = parse_tuple_or_expression();
        expect_op(")");
        return inner;
    }
    if (skip_op("[")) {
        ExpressionPtr list = make(ExpressionKind::list, at);
        while (!is_op("]")) {
            if (!list->operands.empty()) expect_op(",");
            if (is_op("]")) break;
            list->operands.push_back(parse_expression());
        }
        expect_op("]");
        measure(*list);
        return list;
    }
    if (skip_op("{")) {
        ExpressionPtr dict = make(ExpressionKind::dict, at);
        while (!is_op("}")) {
            if (!dict->operands.empty()) expect_op(",");
            if (is_op("}")) break;
            dict->operands.push_back(parse_expression());
            expect_op(":");
            dict->operands.push_back(parse_expression());
        }
        expect_op("}");
        measure(*dict);
        return dict;
    }
    unexpected("an expression");
}

ExpressionPtr ExpressionParser::parse_number() {
    const Token number = take();
    ExpressionPtr node = make(ExpressionKind::constant, number.line);
    const char* begin = number.text.data();
    const char* end = begin + number.text.size();
    bool good = false;
    if (number.kind == TokenKind::integer) {
        std::int64_t value = 0;
        good = std::from_chars(begin, end, value).ec == std::errc();
        node->constant = Value(value);
    } else {
        double value = 0;
        good = std::from_chars(begin, end, value).ec == std::errc();
        node->constant = Value(value);
    }
    if (!good) throw SyntaxFailure{number.line, "the number " + number.text + " is too large"};
    return node;
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr node) {
    for (;;) {
        const int at = line();
        if (skip_op(".")) {
            if (token().kind == TokenKind::integer) {
                ExpressionPtr index = parse_number();
                node = join(ExpressionKind::item, at, "", std::move(node), std::move(index));
            } else {
                node = join(ExpressionKind::attribute, at, expect_any_name(), std::move(node));
            }
        } else if (skip_op("[")) {
            node = parse_subscript(std::move(node), at);
        } else if (is_op("(")) {
            node = parse_call(std::move(node), at);
        } else {
            return node;
        }
    }
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr node, int at) {
    ExpressionPtr parts[3];
    std::size_t count = 0;
    bool is_slice = false;
    for (;;) {
        if (!is_op(":") && !is_op("]")) parts[count] = parse_expression();
        if (!is_op(":") || count == 2) break;
        skip();
        is_slice = true;
        ++count;
    }
    expect_op("]");
    if (is_slice)
        return join(ExpressionKind::slice, at, "", std::move(node), std::move(parts[0]),
                    std::move(parts[1]), std::move(parts[2]));
    if (!parts[0]) throw SyntaxFailure{at, "an index is missing in \"[]\""};
    return join(ExpressionKind::item, at, "", std::move(node), std::move(parts[0]));
}

void ExpressionParser::parse_arguments(Expression& into) {
    expect_op("(");
    while (!is_op(")")) {
        if (!into.arguments.empty() || !into.named.empty()) {
            expect_op(",");
            if (is_op(")")) break;
        }
        if (is_op("*") || is_op("**"))
            throw SyntaxFailure{line(), "\"*\" and \"**\" arguments are not supported"};
        if (token().kind == TokenKind::name && ahead().kind == TokenKind::op &&
            ahead().text == "=") {
            std::string name = take().text;
            skip();
            into.named.emplace_back(std::move(name), parse_expression());
        } else {
            if (!into.named.empty())
                throw SyntaxFailure{line(), "a positional argument after a named one"};
            into.arguments.push_back(parse_expression());
        }
    }
    expect_op(")");
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee, int at) {
    if (callee->kind == ExpressionKind::attribute && !is_method(callee->text))
        throw SyntaxFailure{at, "the method \"" + callee->text + "\" is not supported"};
    ExpressionPtr node = make(ExpressionKind::call, at);
    node->operands.push_back(std::move(callee));
    parse_arguments(*node);
    measure(*node);
    return node;
}

ExpressionPtr ExpressionParser::block_text() const {
    return make(ExpressionKind::name, line(), kBlockText);
}

ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr node) {
    const int at = line();
    const std::string name = expect_any_name();
    if (!is_filter(name)) throw SyntaxFailure{at, "the filter \"" + name + "\" is not supported"};
    ExpressionPtr filter = make(ExpressionKind::filter, at, name);
    filter->operands.push_back(std::move(node));
    if (is_op("(")) parse_arguments(*filter);
    measure(*filter);
    return filter;
}

// Filters, tests and calls behind a value.
ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr node) {
    for (;;) {
        const int at = line();
        if (skip_op("|")) {
            node = parse_filter(std::move(node));
        } else if (skip_name("is")) {
            node = parse_test(std::move(node), at);
        } else if (is_op("(")) {
            node = parse_call(std::move(node), at);
        } else {
            return node;
        }
    }
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr node, int at) {
    const bool negated = skip_name("not");
    std::string name = expect_any_name();
    if (!is_test(name)) throw SyntaxFailure{at, "the test \"" + name + "\" is not supported"};
    ExpressionPtr test = make(ExpressionKind::test, at, std::move(name));
    test->operands.push_back(std::move(node));
    if (is_name("if") || is_name("is") || is_name("in") || is_name("not"))
        throw SyntaxFailure{
            line(), "a test must not be followed by \"" + token().text + "\": put it in brackets"};
    const bool value_follows =
        token().kind == TokenKind::string || token().kind == TokenKind::integer ||
        token().kind == TokenKind::real || is_op("[") || is_op("{") ||
        (token().kind == TokenKind::name && !is_name("else") && !is_name("or") && !is_name("and"));
    if (is_op("(")) {
        parse_arguments(*test);
    } else if (value_follows) {
        test->arguments.push_back(parse_postfix(parse_primary()));
    }
    measure(*test);
    return negated ? join(ExpressionKind::logical_not, at, "", std::move(test)) : std::move(test);
}

}  // namespace garam::jinja
