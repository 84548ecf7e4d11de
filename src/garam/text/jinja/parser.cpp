#include "garam/text/jinja/parser.h"

#include <algorithm>
#include <charconv>

#include "garam/text/jinja/filters.h"
#include "garam/text/jinja/methods.h"

namespace garam::jinja {
namespace {

class Parser {
  public:
    explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}

    Block run() {
        Block block = parse_block({}, "");
        return block;
    }

  private:
    // Counts nesting while a rule is at work.
    class Level {
      public:
        Level(int& depth, int line) : depth_(depth) {
            if (depth_ >= kMaxNesting) throw SyntaxFailure{line, "nested deeper than 64"};
            ++depth_;
        }
        ~Level() { --depth_; }
        Level(const Level&) = delete;
        Level& operator=(const Level&) = delete;

      private:
        int& depth_;
    };

    const Token& token() const { return tokens_[at_]; }
    const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
    int line() const { return token().line; }
    Token take() { return std::move(tokens_[at_++]); }
    bool is_op(std::string_view text) const {
        return token().kind == TokenKind::op && token().text == text;
    }
    bool is_name(std::string_view text) const {
        return token().kind == TokenKind::name && token().text == text;
    }
    bool skip_op(std::string_view text) {
        if (!is_op(text)) return false;
        ++at_;
        return true;
    }
    bool skip_name(std::string_view text) {
        if (!is_name(text)) return false;
        ++at_;
        return true;
    }
    std::string describe() const {
        switch (token().kind) {
            case TokenKind::end:
                return "the end of the template";
            case TokenKind::variable_end:
                return "\"}}\"";
            case TokenKind::block_end:
                return "\"%}\"";
            default:
                return "\"" + token().text + "\"";
        }
    }
    [[noreturn]] void unexpected(const std::string& wanted) const {
        throw SyntaxFailure{line(), "expected " + wanted + ", found " + describe()};
    }
    void expect_op(std::string_view text) {
        if (!skip_op(text)) unexpected("\"" + std::string(text) + "\"");
    }
    void expect_name(std::string_view text) {
        if (!skip_name(text)) unexpected("\"" + std::string(text) + "\"");
    }
    std::string expect_any_name() {
        if (token().kind != TokenKind::name) unexpected("a name");
        return take().text;
    }
    void expect_block_end() {
        if (token().kind != TokenKind::block_end) unexpected("\"%}\"");
        ++at_;
    }

    // ---- statements ----

    // Up to one of the tags in `ends` (its name stays the current token) or, without any, to the end.
    Block parse_block(std::initializer_list<std::string_view> ends, const std::string& opened) {
        const Level level(block_depth_, line());
        const int begun = line();
        Block block;
        for (;;) {
            switch (token().kind) {
                case TokenKind::end:
                    if (ends.size() > 0)
                        throw SyntaxFailure{begun, "the block \"" + opened + "\" has no end"};
                    return block;
                case TokenKind::data: {
                    Statement statement{StatementKind::data};
                    statement.line = line();
                    statement.text = take().text;
                    block.push_back(std::move(statement));
                    break;
                }
                case TokenKind::variable_begin: {
                    Statement statement{StatementKind::output};
                    statement.line = take().line;
                    statement.value = parse_tuple_or_expression();
                    if (token().kind != TokenKind::variable_end) unexpected("\"}}\"");
                    ++at_;
                    block.push_back(std::move(statement));
                    break;
                }
                case TokenKind::block_begin: {
                    ++at_;
                    if (token().kind != TokenKind::name) unexpected("the name of a block");
                    if (std::find(ends.begin(), ends.end(), token().text) != ends.end())
                        return block;
                    block.push_back(parse_statement());
                    break;
                }
                default:
                    unexpected("text or a block");
            }
        }
    }

    Statement parse_statement() {
        const int begun = line();
        const std::string tag = take().text;
        Statement statement{StatementKind::data};
        if (tag == "if") {
            statement = parse_if();
        } else if (tag == "for") {
            statement = parse_for();
        } else if (tag == "set") {
            statement = parse_set();
        } else if (tag == "macro") {
            statement = parse_macro(begun);
        } else if (tag == "generation") {
            expect_block_end();
            statement = Statement{StatementKind::generation};
            statement.body = parse_block({"endgeneration"}, tag);
            ++at_;
            expect_block_end();
        } else if (tag == "break" || tag == "continue") {
            if (loop_depth_ == 0) throw SyntaxFailure{begun, "\"" + tag + "\" outside of a loop"};
            statement = Statement{tag == "break" ? StatementKind::loop_break
                                                 : StatementKind::loop_continue};
            expect_block_end();
        } else {
            throw SyntaxFailure{begun,
                                "the block \"" + tag +
                                    "\" is not supported here; supported are if, for, set, macro, "
                                    "generation, break, continue and raw"};
        }
        statement.line = begun;
        return statement;
    }

    Statement parse_if() {
        Statement statement{StatementKind::branch};
        for (;;) {
            ExpressionPtr condition = parse_tuple_or_expression();
            expect_block_end();
            statement.branches.emplace_back(std::move(condition),
                                            parse_block({"elif", "else", "endif"}, "if"));
            const std::string tag = take().text;
            if (tag == "elif") continue;
            if (tag == "else") {
                expect_block_end();
                statement.otherwise = parse_block({"endif"}, "else");
                ++at_;
            }
            expect_block_end();
            return statement;
        }
    }

    std::vector<std::string> parse_targets() {
        std::vector<std::string> names;
        const bool bracket = skip_op("(");
        do {
            names.push_back(expect_any_name());
        } while (skip_op(",") && token().kind == TokenKind::name);
        if (bracket) expect_op(")");
        return names;
    }

    Statement parse_for() {
        Statement statement{StatementKind::loop};
        statement.targets = parse_targets();
        expect_name("in");
        // A condition behind the list filters the loop; it is not an inline if.
        statement.value = parse_tuple_or_expression(false);
        if (skip_name("if")) statement.condition = parse_expression();
        if (is_name("recursive")) throw SyntaxFailure{line(), "recursive loops are not supported"};
        expect_block_end();
        ++loop_depth_;
        statement.body = parse_block({"else", "endfor"}, "for");
        --loop_depth_;
        if (take().text == "else") {
            expect_block_end();
            statement.otherwise = parse_block({"endfor"}, "else");
            ++at_;
        }
        expect_block_end();
        return statement;
    }

    Statement parse_set() {
        Statement statement{StatementKind::assign};
        if (token().kind == TokenKind::name && ahead().kind == TokenKind::op &&
            ahead().text == ".") {
            statement.kind = StatementKind::assign_member;
            statement.targets.push_back(take().text);
            ++at_;
            statement.text = expect_any_name();
        } else {
            statement.targets = parse_targets();
        }
        if (skip_op("=")) {
            statement.value = parse_tuple_or_expression();
            expect_block_end();
            return statement;
        }
        if (statement.kind != StatementKind::assign || statement.targets.size() != 1)
            unexpected("\"=\"");
        if (is_op("|")) throw SyntaxFailure{line(), "a filter on a set block is not supported"};
        expect_block_end();
        statement.kind = StatementKind::assign_block;
        statement.body = parse_block({"endset"}, "set");
        ++at_;
        expect_block_end();
        return statement;
    }

    Statement parse_macro(int begun) {
        if (loop_depth_ > 0 || in_macro_)
            throw SyntaxFailure{begun, "a macro inside of a loop or of a macro is not supported"};
        Statement statement{StatementKind::macro};
        statement.macro = std::make_unique<Macro>();
        Macro& macro = *statement.macro;
        macro.name = expect_any_name();
        expect_op("(");
        while (!is_op(")")) {
            if (!macro.parameters.empty()) expect_op(",");
            macro.parameters.push_back(expect_any_name());
            if (skip_op("=")) {
                macro.defaults.push_back(parse_expression());
            } else if (!macro.defaults.empty()) {
                throw SyntaxFailure{line(), "a parameter without a default after one with it"};
            }
        }
        expect_op(")");
        expect_block_end();
        in_macro_ = true;
        macro.body = parse_block({"endmacro"}, "macro");
        in_macro_ = false;
        ++at_;
        expect_block_end();
        return statement;
    }

    // ---- expressions, loosest first ----

    ExpressionPtr make(ExpressionKind kind, int at, std::string text = {}) const {
        auto made = std::make_unique<Expression>();
        made->kind = kind;
        made->line = at;
        made->text = std::move(text);
        return made;
    }
    static void measure(Expression& node) {
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
    template <typename... Operands>
    ExpressionPtr join(ExpressionKind kind, int at, std::string text, Operands... operands) const {
        ExpressionPtr node = make(kind, at, std::move(text));
        (node->operands.push_back(std::move(operands)), ...);
        measure(*node);
        return node;
    }

    ExpressionPtr parse_tuple_or_expression(bool conditional = true) {
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

    ExpressionPtr parse_expression(bool conditional = true) {
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

    ExpressionPtr parse_or() {
        ExpressionPtr left = parse_and();
        while (is_name("or")) {
            const int at = take().line;
            left = join(ExpressionKind::logical_or, at, "", std::move(left), parse_and());
        }
        return left;
    }

    ExpressionPtr parse_and() {
        ExpressionPtr left = parse_not();
        while (is_name("and")) {
            const int at = take().line;
            left = join(ExpressionKind::logical_and, at, "", std::move(left), parse_not());
        }
        return left;
    }

    ExpressionPtr parse_not() {
        if (!is_name("not")) return parse_compare();
        const Level level(expression_depth_, line());
        const int at = take().line;
        return join(ExpressionKind::logical_not, at, "", parse_not());
    }

    ExpressionPtr parse_compare() {
        const int at = line();
        ExpressionPtr first = parse_sum();
        ExpressionPtr chain;
        for (;;) {
            std::string op;
            for (const char* known : {"==", "!=", "<=", ">=", "<", ">"})
                if (is_op(known)) op = known;
            if (is_name("in")) op = "in";
            if (is_name("not") && ahead().kind == TokenKind::name && ahead().text == "in") {
                ++at_;
                op = "not in";
            }
            if (op.empty()) break;
            ++at_;
            if (!chain) chain = join(ExpressionKind::compare, at, "", std::move(first));
            chain->comparisons.push_back(op);
            chain->operands.push_back(parse_sum());
        }
        if (!chain) return first;
        measure(*chain);
        return chain;
    }

    ExpressionPtr parse_sum() {
        ExpressionPtr left = parse_concat();
        while (is_op("+") || is_op("-")) {
            const Token op = take();
            left = join(ExpressionKind::binary, op.line, op.text, std::move(left), parse_concat());
        }
        return left;
    }

    ExpressionPtr parse_concat() {
        const int at = line();
        ExpressionPtr first = parse_product();
        if (!is_op("~")) return first;
        ExpressionPtr chain = join(ExpressionKind::concat, at, "", std::move(first));
        while (skip_op("~"))
            chain->operands.push_back(parse_product());
        measure(*chain);
        return chain;
    }

    ExpressionPtr parse_product() {
        ExpressionPtr left = parse_power();
        while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
            const Token op = take();
            left = join(ExpressionKind::binary, op.line, op.text, std::move(left), parse_power());
        }
        return left;
    }

    ExpressionPtr parse_power() {
        ExpressionPtr left = parse_unary(true);
        while (is_op("**")) {
            const int at = take().line;
            left = join(ExpressionKind::binary, at, "**", std::move(left), parse_unary(true));
        }
        return left;
    }

    ExpressionPtr parse_unary(bool with_filters) {
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

    ExpressionPtr parse_primary() {
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

    ExpressionPtr parse_number() {
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

    ExpressionPtr parse_postfix(ExpressionPtr node) {
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

    ExpressionPtr parse_subscript(ExpressionPtr node, int at) {
        ExpressionPtr parts[3];
        std::size_t count = 0;
        bool is_slice = false;
        for (;;) {
            if (!is_op(":") && !is_op("]")) parts[count] = parse_expression();
            if (!is_op(":") || count == 2) break;
            ++at_;
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

    void parse_arguments(Expression& into) {
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
                ++at_;
                into.named.emplace_back(std::move(name), parse_expression());
            } else {
                if (!into.named.empty())
                    throw SyntaxFailure{line(), "a positional argument after a named one"};
                into.arguments.push_back(parse_expression());
            }
        }
        expect_op(")");
    }

    ExpressionPtr parse_call(ExpressionPtr callee, int at) {
        if (callee->kind == ExpressionKind::attribute && !is_method(callee->text))
            throw SyntaxFailure{at, "the method \"" + callee->text + "\" is not supported"};
        ExpressionPtr node = make(ExpressionKind::call, at);
        node->operands.push_back(std::move(callee));
        parse_arguments(*node);
        measure(*node);
        return node;
    }

    // Filters, tests and calls behind a value.
    ExpressionPtr parse_filters(ExpressionPtr node) {
        for (;;) {
            const int at = line();
            if (skip_op("|")) {
                const std::string name = expect_any_name();
                if (!is_filter(name))
                    throw SyntaxFailure{at, "the filter \"" + name + "\" is not supported"};
                ExpressionPtr filter = make(ExpressionKind::filter, at, name);
                filter->operands.push_back(std::move(node));
                if (is_op("(")) parse_arguments(*filter);
                measure(*filter);
                node = std::move(filter);
            } else if (skip_name("is")) {
                node = parse_test(std::move(node), at);
            } else if (is_op("(")) {
                node = parse_call(std::move(node), at);
            } else {
                return node;
            }
        }
    }

    ExpressionPtr parse_test(ExpressionPtr node, int at) {
        const bool negated = skip_name("not");
        std::string name = expect_any_name();
        if (!is_test(name)) throw SyntaxFailure{at, "the test \"" + name + "\" is not supported"};
        ExpressionPtr test = make(ExpressionKind::test, at, std::move(name));
        test->operands.push_back(std::move(node));
        const bool value_follows = token().kind == TokenKind::string ||
                                   token().kind == TokenKind::integer ||
                                   token().kind == TokenKind::real || is_op("[") || is_op("{") ||
                                   (token().kind == TokenKind::name && !is_name("else") &&
                                    !is_name("or") && !is_name("and") && !is_name("if") &&
                                    !is_name("is") && !is_name("in") && !is_name("not"));
        if (is_op("(")) {
            parse_arguments(*test);
        } else if (value_follows) {
            test->arguments.push_back(parse_postfix(parse_primary()));
        }
        measure(*test);
        return negated ? join(ExpressionKind::logical_not, at, "", std::move(test))
                       : std::move(test);
    }

    std::vector<Token> tokens_;
    std::size_t at_ = 0;
    int block_depth_ = 0;
    int expression_depth_ = 0;
    int loop_depth_ = 0;
    bool in_macro_ = false;
};

}  // namespace

Block parse(std::string_view source) {
    return Parser(source).run();
}

}  // namespace garam::jinja
