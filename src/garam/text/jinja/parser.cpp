#include "garam/text/jinja/parser.h"

#include <algorithm>

#include "garam/text/jinja/expression_parser.h"

namespace garam::jinja {
namespace {

class Parser : public ExpressionParser {
  public:
    using ExpressionParser::ExpressionParser;

    Block run() { return parse_block({}, ""); }

  private:
    // Up to one of the tags in `ends` (its name stays the current token) or, without any, to the end.
    Block parse_block(const std::vector<std::string>& ends, const std::string& opened) {
        const Level level(block_depth_, line());
        const int begun = line();
        Block block;
        for (;;) {
            switch (token().kind) {
                case TokenKind::end:
                    if (!ends.empty())
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
                    skip();
                    block.push_back(std::move(statement));
                    break;
                }
                case TokenKind::block_begin: {
                    skip();
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
        } else if (tag == "filter") {
            statement = Statement{StatementKind::filter_block};
            statement.value = parse_filters(parse_filter(block_text()));
            finish_block(statement, tag);
        } else if (tag == "with") {
            statement = parse_with();
        } else if (tag == "call") {
            statement = parse_call_block();
        } else if (tag == "generation") {
            expect_block_end();
            statement = Statement{StatementKind::generation};
            statement.body = parse_block({"endgeneration"}, tag);
            skip();
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
                                    "call, filter, with, generation, break, continue and raw"};
        }
        statement.line = begun;
        return statement;
    }

    // The rest of a tag, its body and its end.
    void finish_block(Statement& statement, const std::string& tag) {
        expect_block_end();
        statement.body = parse_block({"end" + tag}, tag);
        skip();
        expect_block_end();
    }

    Statement parse_with() {
        Statement statement{StatementKind::with};
        statement.value = make(ExpressionKind::list, line());
        while (token().kind != TokenKind::block_end) {
            if (!statement.value->named.empty()) expect_op(",");
            std::string name = expect_any_name();
            expect_op("=");
            statement.value->named.emplace_back(std::move(name), parse_expression());
        }
        finish_block(statement, "with");
        return statement;
    }

    Statement parse_call_block() {
        Statement statement{StatementKind::call_block};
        statement.macro = std::make_unique<Macro>();
        statement.macro->name = "caller";
        if (is_op("(")) parse_parameters(*statement.macro);
        statement.value = parse_expression();
        if (statement.value->kind != ExpressionKind::call)
            throw SyntaxFailure{line(), "the block \"call\" needs a call"};
        expect_block_end();
        statement.macro->body = parse_block({"endcall"}, "call");
        skip();
        expect_block_end();
        return statement;
    }

    Statement parse_if() {
        Statement statement{StatementKind::branch};
        for (;;) {
            ExpressionPtr condition = parse_tuple_or_expression(false);
            expect_block_end();
            statement.branches.emplace_back(std::move(condition),
                                            parse_block({"elif", "else", "endif"}, "if"));
            const std::string tag = take().text;
            if (tag == "elif") continue;
            if (tag == "else") {
                expect_block_end();
                statement.otherwise = parse_block({"endif"}, "else");
                skip();
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
        statement.recursive = skip_name("recursive");
        expect_block_end();
        ++loop_depth_;
        statement.body = parse_block({"else", "endfor"}, "for");
        --loop_depth_;
        if (take().text == "else") {
            expect_block_end();
            statement.otherwise = parse_block({"endfor"}, "else");
            skip();
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
            skip();
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
        if (is_op("|")) statement.value = parse_filters(block_text());
        expect_block_end();
        statement.kind = StatementKind::assign_block;
        statement.body = parse_block({"endset"}, "set");
        skip();
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
        parse_parameters(macro);
        expect_block_end();
        in_macro_ = true;
        macro.body = parse_block({"endmacro"}, "macro");
        in_macro_ = false;
        skip();
        expect_block_end();
        return statement;
    }

    void parse_parameters(Macro& macro) {
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
    }

    int block_depth_ = 0;
    int loop_depth_ = 0;
    bool in_macro_ = false;
};

}  // namespace

Block parse(std::string_view source) {
    return Parser(source).run();
}

}  // namespace garam::jinja
