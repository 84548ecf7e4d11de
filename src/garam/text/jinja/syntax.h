// The parsed template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "garam/text/jinja/value.h"

namespace garam::jinja {

enum class ExpressionKind {
    constant,
    name,
    list,
    tuple,
    dict,       // operands: key, value, key, value, …
    attribute,  // operands[0].text
    item,       // operands[0][operands[1]]
    slice,      // operands[0][operands[1]:operands[2]:operands[3]], null where absent
    call,       // operands[0](arguments)
    filter,     // operands[0] | text(arguments)
    test,       // operands[0] is text(arguments)
    logical_not,
    logical_and,
    logical_or,
    negate,
    plus,
    binary,     // operands[0] text operands[1]
    concat,     // operands joined with ~
    compare,    // operands[0] comparisons[0] operands[1] comparisons[1] …
    condition,  // operands[0] if operands[1] else operands[2] (may be null)
};

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
    ExpressionKind kind;
    int line = 0;
    int height = 1;    // of the tree
    std::string text;  // name, attribute, filter, test, operator
    Value constant;
    std::vector<ExpressionPtr> operands;
    std::vector<ExpressionPtr> arguments;  // call, filter, test
    std::vector<std::pair<std::string, ExpressionPtr>> named;
    std::vector<std::string> comparisons;
};

enum class StatementKind {
    data,           // text
    output,         // value
    branch,         // branches; `otherwise`
    loop,           // for targets in value if condition: body; otherwise
    assign,         // targets = value
    assign_member,  // targets[0].text = value
    assign_block,   // targets[0] = body, through the filters of value (null: none)
    filter_block,   // body through the filters of value
    call_block,     // value, a call; `macro` is its caller
    with,           // body with the names of value.named
    macro,
    generation,  // body, in a scope of its own
    loop_break,
    loop_continue,
};

// The name under which the filters behind a block find its text.
constexpr const char* kBlockText = "";

struct Statement;
using Block = std::vector<Statement>;

struct Macro {
    std::string name;
    std::vector<std::string> parameters;
    std::vector<ExpressionPtr> defaults;  // of the last parameters
    Block body;
};

struct Statement {
    StatementKind kind;
    int line = 0;
    std::string text;
    bool recursive = false;  // loop
    ExpressionPtr value;
    ExpressionPtr condition;
    std::vector<std::string> targets;
    std::vector<std::pair<ExpressionPtr, Block>> branches;
    Block body;
    Block otherwise;
    std::unique_ptr<Macro> macro;
};

}  // namespace garam::jinja
