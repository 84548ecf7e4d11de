#include "garam/text/jinja/evaluator.h"

#include <algorithm>
#include <ctime>

#include "garam/text/jinja/filters.h"
#include "garam/text/jinja/methods.h"
#include "garam/text/jinja/operators.h"

namespace garam::jinja {
namespace {

constexpr std::int64_t kMaxRange = 100'000;  // as in Jinja2's sandbox

// Names of one scope; the ones outside stay visible.
struct Scope {
    std::vector<std::pair<std::string, Value>> names;
    const Scope* outer = nullptr;

    void set(const std::string& name, Value value) {
        for (auto& [known, held] : names) {
            if (known == name) {
                held = std::move(value);
                return;
            }
        }
        names.emplace_back(name, std::move(value));
    }
    const Value* find(std::string_view name) const {
        for (const Scope* scope = this; scope != nullptr; scope = scope->outer)
            for (const auto& [known, held] : scope->names)
                if (known == name) return &held;
        return nullptr;
    }
};

enum class Flow { normal, leaves_loop, next_iteration };

class Evaluator {
  public:
    Evaluator(std::vector<std::pair<std::string, Value>> variables, std::optional<std::int64_t> now)
        : now_(now) {
        global_.names = {{"range", Function::range},
                         {"namespace", Function::make_namespace},
                         {"dict", Function::dict},
                         {"raise_exception", Function::raise_exception},
                         {"strftime_now", Function::strftime_now}};
        for (auto& [name, value] : variables)
            global_.set(name, std::move(value));
        top_.outer = &global_;
    }

    MarkedText run(const Block& program) {
        MarkedText out;
        try {
            run_block(program, top_, out);
        } catch (const Failure& failure) {
            throw RenderFailure{line_, failure.message};
        }
        return out;
    }

  private:
    void emit(MarkedText& out, const MarkedText& text) {
        const std::size_t before = out.held_bytes();
        out.append(text);
        budget_.bytes(out.held_bytes() - before);
        budget_.scan(text.size());
    }

    // What the template itself writes while it is at a message is that message's.
    void emit_owned(MarkedText& out, MarkedText text) {
        if (owner_ >= 0) text.own(owner_);
        emit(out, text);
    }
    Value owned(Value value) const {
        if (owner_ < 0 || !value.is_string()) return value;
        MarkedText text = *value.string();
        text.own(owner_);
        return text;
    }
    // In a loop over something else (indices), the first message looked at is the one it is at.
    void claim(int message) {
        if (!may_claim_ || message < 0) return;
        owner_ = message;
        may_claim_ = false;
    }

    Flow run_block(const Block& block, Scope& scope, MarkedText& out) {
        const Budget::Level level(budget_);
        for (const Statement& statement : block) {
            const Flow flow = run_statement(statement, scope, out);
            if (flow != Flow::normal) return flow;
        }
        return Flow::normal;
    }

    Flow run_statement(const Statement& statement, Scope& scope, MarkedText& out) {
        budget_.step();
        line_ = statement.line;
        switch (statement.kind) {
            case StatementKind::data:
                emit_owned(out, statement.text);
                return Flow::normal;
            case StatementKind::output:
                emit_owned(out, to_text(evaluate(*statement.value, scope), budget_));
                return Flow::normal;
            case StatementKind::branch:
                for (const auto& [condition, body] : statement.branches)
                    if (evaluate(*condition, scope).truthy()) return run_block(body, scope, out);
                return run_block(statement.otherwise, scope, out);
            case StatementKind::loop:
                return run_loop(statement, scope, out);
            case StatementKind::assign:
                assign(statement.targets, owned(evaluate(*statement.value, scope)), scope);
                return Flow::normal;
            case StatementKind::assign_member: {
                const Value* space = scope.find(statement.targets[0]);
                if (space == nullptr || space->space() == nullptr)
                    fail("\"" + statement.targets[0] +
                         "\" is no namespace, so nothing can be set in it");
                set_member(*space->space(), statement.text,
                           owned(evaluate(*statement.value, scope)));
                return Flow::normal;
            }
            case StatementKind::assign_block: {
                MarkedText text;
                Scope inner;
                inner.outer = &scope;
                run_block(statement.body, inner, text);
                scope.set(statement.targets[0],
                          statement.value
                              ? owned(filtered(*statement.value, std::move(text), scope))
                              : Value(std::move(text)));
                return Flow::normal;
            }
            case StatementKind::filter_block: {
                Scope inner;
                inner.outer = &scope;
                MarkedText text;
                const Flow flow = run_block(statement.body, inner, text);
                emit_owned(out,
                           to_text(filtered(*statement.value, std::move(text), scope), budget_));
                return flow;
            }
            case StatementKind::with: {
                Scope inner;
                inner.outer = &scope;
                for (const auto& [name, value] : statement.value->named)
                    inner.set(name, evaluate(*value, scope));
                return run_block(statement.body, inner, out);
            }
            case StatementKind::call_block: {
                const Value called = evaluate(*statement.value->operands[0], scope);
                if (called.macro() == nullptr) fail("a call block needs a macro");
                emit_owned(out, *call_macro(*called.macro(), *statement.value, scope,
                                            statement.macro.get())
                                     .string());
                return Flow::normal;
            }
            case StatementKind::macro:
                scope.set(statement.macro->name, statement.macro.get());
                return Flow::normal;
            case StatementKind::generation: {
                Scope inner;
                inner.outer = &scope;
                MarkedText text;
                const Flow flow = run_block(statement.body, inner, text);
                text.set_generation();
                emit(out, text);
                return flow;
            }
            case StatementKind::loop_break:
                return Flow::leaves_loop;
            case StatementKind::loop_continue:
                return Flow::next_iteration;
        }
        return Flow::normal;
    }

    static void check_member(const std::string& name, const Value& value) {
        if (value.space() != nullptr || value.loop() != nullptr)
            fail("a namespace cannot hold a namespace or loop");
        if (name.starts_with("_")) fail("a namespace cannot hold the name \"" + name + "\"");
    }

    static void set_member(Namespace& space, const std::string& name, Value value) {
        check_member(name, value);
        for (auto& [known, held] : space.values.entries) {
            if (known == name) {
                held = std::move(value);
                return;
            }
        }
        space.values.entries.emplace_back(name, std::move(value));
    }

    void assign(const std::vector<std::string>& targets, const Value& value, Scope& scope) {
        if (targets.size() == 1) {
            scope.set(targets[0], value);
            return;
        }
        const auto parts = iterate(value, budget_);
        if (parts->items.size() != targets.size())
            fail(std::to_string(targets.size()) + " names for " +
                 std::to_string(parts->items.size()) + " values");
        for (std::size_t i = 0; i < targets.size(); ++i)
            scope.set(targets[i], parts->items[i]);
    }

    Value filtered(const Expression& filters, MarkedText text, const Scope& scope) {
        Scope inner;
        inner.outer = &scope;
        inner.set(kBlockText, std::move(text));
        return evaluate(filters, inner);
    }

    Flow run_loop(const Statement& statement, Scope& scope, MarkedText& out) {
        run_loop_over(evaluate(*statement.value, scope), statement, scope, out, 1);
        return Flow::normal;
    }

    void run_loop_over(const Value& value, const Statement& statement, const Scope& scope,
                       MarkedText& out, int depth) {
        const Budget::Level level(budget_);
        auto items = iterate(value, budget_);
        if (statement.condition != nullptr) {
            List kept;
            for (const Value& entry : items->items) {
                budget_.iteration();
                Scope inner;
                inner.outer = &scope;
                assign(statement.targets, entry, inner);
                if (evaluate(*statement.condition, inner).truthy()) kept.items.push_back(entry);
            }
            items = Value(std::move(kept)).shared_list();
        }
        if (items->items.empty()) {
            Scope inner;
            inner.outer = &scope;
            run_block(statement.otherwise, inner, out);
            return;
        }
        const auto seen = std::make_shared<List>();
        const Scope* scope_before = recursive_scope_;
        if (statement.recursive) recursive_scope_ = &scope;
        const int owner_before = owner_;
        const bool claim_before = may_claim_;
        for (std::size_t i = 0; i < items->items.size(); ++i) {
            budget_.iteration();
            const int message = items->items[i].message();
            owner_ = message >= 0 ? message : owner_before;
            may_claim_ = owner_ < 0;
            Scope inner;
            inner.outer = &scope;
            auto loop = std::make_shared<const Loop>(
                Loop{items, i, depth, statement.recursive ? &statement : nullptr, seen});
            inner.set("loop", std::move(loop));
            assign(statement.targets, items->items[i], inner);
            if (run_block(statement.body, inner, out) == Flow::leaves_loop) break;
        }
        owner_ = owner_before;
        may_claim_ = claim_before;
        recursive_scope_ = scope_before;
    }

    Arguments arguments_of(const Expression& node, const Scope& scope) {
        Arguments arguments;
        for (const auto& argument : node.arguments)
            arguments.positional.push_back(evaluate(*argument, scope));
        for (const auto& [name, argument] : node.named)
            arguments.named.emplace_back(name, evaluate(*argument, scope));
        return arguments;
    }

    Value evaluate(const Expression& node, const Scope& scope) {
        const Budget::Level level(budget_);
        budget_.step();
        const int before = line_;
        line_ = node.line;
        Value value = evaluate_node(node, scope);
        line_ = before;
        return value;
    }

    Value evaluate_node(const Expression& node, const Scope& scope) {
        const auto operand = [&](std::size_t i) { return evaluate(*node.operands[i], scope); };
        switch (node.kind) {
            case ExpressionKind::constant:
                return node.constant;
            case ExpressionKind::name: {
                const Value* found = scope.find(node.text);
                return found != nullptr ? *found : Value::undefined("\"" + node.text + "\"");
            }
            case ExpressionKind::list:
            case ExpressionKind::tuple: {
                List list;
                list.tuple = node.kind == ExpressionKind::tuple;
                for (std::size_t i = 0; i < node.operands.size(); ++i)
                    list.items.push_back(operand(i));
                return list;
            }
            case ExpressionKind::dict:
                return make_dict(node, scope);
            case ExpressionKind::attribute: {
                const Value subject = operand(0);
                // x.items of a dict is its method, whatever keys it has.
                if (subject.dict() != nullptr &&
                    (node.text == "items" || node.text == "keys" || node.text == "values" ||
                     node.text == "get" || node.text == "copy"))
                    return Function::method;
                return attribute(subject, node.text, budget_);
            }
            case ExpressionKind::item: {
                const Value subject = operand(0);
                Value found = item(subject, operand(1), budget_);
                claim(found.message());
                return found;
            }
            case ExpressionKind::slice: {
                const auto bound = [&](std::size_t i) {
                    return node.operands[i] ? operand(i) : Value::none();
                };
                return slice(operand(0), bound(1), bound(2), bound(3), budget_);
            }
            case ExpressionKind::call:
                return call(node, scope);
            case ExpressionKind::filter:
                return apply_filter(node.text, operand(0), arguments_of(node, scope), budget_);
            case ExpressionKind::test:
                return apply_test(node.text, operand(0), arguments_of(node, scope), budget_);
            case ExpressionKind::logical_not:
                return !operand(0).truthy();
            case ExpressionKind::logical_and: {
                Value left = operand(0);
                return left.truthy() ? operand(1) : left;
            }
            case ExpressionKind::logical_or: {
                Value left = operand(0);
                return left.truthy() ? left : operand(1);
            }
            case ExpressionKind::negate:
                return negate(operand(0));
            case ExpressionKind::plus:
                return operand(0);
            case ExpressionKind::binary: {
                const Value left = operand(0);
                return apply_binary(node.text, left, operand(1), budget_);
            }
            case ExpressionKind::concat: {
                MarkedText all;
                for (std::size_t i = 0; i < node.operands.size(); ++i)
                    emit(all, to_text(operand(i), budget_));
                return all;
            }
            case ExpressionKind::compare: {
                Value left = operand(0);
                for (std::size_t i = 0; i < node.comparisons.size(); ++i) {
                    Value right = operand(i + 1);
                    if (!apply_comparison(node.comparisons[i], left, right, budget_)) return false;
                    left = std::move(right);
                }
                return true;
            }
            case ExpressionKind::condition:
                if (operand(1).truthy()) return operand(0);
                return node.operands[2] ? operand(2) : Value::undefined("the inline if's else");
        }
        return {};
    }

    Value make_dict(const Expression& node, const Scope& scope) {
        Dict dict;
        for (std::size_t i = 0; i + 1 < node.operands.size(); i += 2) {
            const Value key = evaluate(*node.operands[i], scope);
            if (!key.is_string()) fail("a dict with a key that is no str is not supported");
            put(dict, key.string()->text(), evaluate(*node.operands[i + 1], scope));
        }
        return dict;
    }

    void put(Dict& dict, const std::string& key, Value value) {
        budget_.step(static_cast<std::int64_t>(1 + dict.entries.size() / 16));
        for (auto& [known, held] : dict.entries) {
            if (known == key) {
                held = std::move(value);
                return;
            }
        }
        dict.entries.emplace_back(key, std::move(value));
    }

    Value call(const Expression& node, const Scope& scope) {
        const Expression& callee = *node.operands[0];
        if (callee.kind == ExpressionKind::attribute) {
            const Value subject = evaluate(*callee.operands[0], scope);
            if (subject.loop() != nullptr && callee.text == "changed")
                return has_changed(*subject.loop(), arguments_of(node, scope));
            return call_method(subject, callee.text, arguments_of(node, scope), budget_);
        }
        const Value function = evaluate(callee, scope);
        if (function.macro() != nullptr) return call_macro(*function.macro(), node, scope);
        if (function.function() == nullptr) {
            if (const Loop* loop = function.loop(); loop != nullptr && loop->recursive != nullptr) {
                MarkedText text;
                run_loop_over(arguments_of(node, scope).get(0, "iterable"), *loop->recursive,
                              *recursive_scope_, text, loop->depth + 1);
                return text;
            }
            const std::string name =
                callee.kind == ExpressionKind::name ? "\"" + callee.text + "\"" : "this";
            fail(name + " is not a function that is supported");
        }
        const Arguments arguments = arguments_of(node, scope);
        switch (*function.function()) {
            case Function::range:
                return make_range(arguments);
            case Function::make_namespace: {
                auto space = std::make_shared<Namespace>();
                if (!arguments.positional.empty())
                    space->values = dict_from(arguments.positional[0]);
                budget_.bytes(held_bytes(space->values));
                for (const auto& [name, value] : space->values.entries)
                    check_member(name, value);
                for (const auto& [name, value] : arguments.named)
                    set_member(*space, name, value);
                return space;
            }
            case Function::dict: {
                Dict dict;
                if (!arguments.positional.empty()) dict = dict_from(arguments.positional[0]);
                dict.message = -1;
                for (const auto& [name, value] : arguments.named)
                    put(dict, name, value);
                return dict;
            }
            case Function::strftime_now:
                return time_text(arguments.get(0, "format"));
            case Function::method:
                fail("a method held in a name cannot be called");
            case Function::raise_exception:
                fail("the template refuses this conversation: " +
                     to_text(arguments.get(0, "message"), budget_).text());
        }
        return {};
    }

    Dict dict_from(const Value& value) {
        if (value.dict() != nullptr) return *value.dict();
        Dict dict;
        const auto entries = iterate(value, budget_);
        for (const Value& entry : entries->items) {
            const auto pair = iterate(entry, budget_);
            if (pair->items.size() != 2 || !pair->items[0].is_string())
                fail("\"dict\" needs pairs of a str and a value");
            put(dict, pair->items[0].string()->text(), pair->items[1]);
        }
        return dict;
    }

    bool has_changed(const Loop& loop, const Arguments& arguments) {
        List now;
        now.items = arguments.positional;
        bool same = !loop.seen->items.empty();
        if (same) same = equal(loop.seen->items[0], Value(now), budget_);
        loop.seen->items = {Value(std::move(now))};
        return !same;
    }

    Value time_text(const Value& format) {
        if (!format.is_string()) fail("\"strftime_now\" needs a format");
        if (format.string()->size() > 1000) fail("\"strftime_now\" with so long a format");
        const std::time_t seconds = now_ ? static_cast<std::time_t>(*now_) : std::time(nullptr);
        std::tm local{};
        localtime_r(&seconds, &local);
        // A mark at the end tells an empty text from one that does not fit.
        const std::string marked = format.string()->text() + "|";
        std::string text(std::size_t{64} << 10, '\0');
        budget_.pass(text.size());
        const std::size_t size = std::strftime(text.data(), text.size(), marked.c_str(), &local);
        if (size == 0) fail("\"strftime_now\" with so long a format");
        text.resize(size - 1);
        return text;
    }

    Value make_range(const Arguments& arguments) {
        std::vector<std::int64_t> bounds;
        for (const Value& value : arguments.positional) {
            const auto bound = value.integer();
            if (!bound) fail("\"range\" needs whole numbers");
            bounds.push_back(*bound);
        }
        if (bounds.empty() || bounds.size() > 3) fail("\"range\" takes one to three numbers");
        const std::int64_t start = bounds.size() == 1 ? 0 : bounds[0];
        const std::int64_t stop = bounds.size() == 1 ? bounds[0] : bounds[1];
        const std::int64_t step = bounds.size() == 3 ? bounds[2] : 1;
        if (step == 0) fail("\"range\" with a step of 0");
        List list;
        for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
            if (static_cast<std::int64_t>(list.items.size()) >= kMaxRange)
                fail("\"range\" of more than 100,000 numbers");
            list.items.emplace_back(i);
            if (__builtin_add_overflow(i, step, &i)) break;
        }
        return list;
    }

    Value call_macro(const Macro& macro, const Expression& node, const Scope& scope,
                     const Macro* caller = nullptr) {
        const Arguments arguments = arguments_of(node, scope);
        const std::size_t count = macro.parameters.size();
        if (arguments.positional.size() > count)
            fail("macro \"" + macro.name + "\" takes " + std::to_string(count) + " arguments");
        for (const auto& [name, value] : arguments.named) {
            if (std::find(macro.parameters.begin(), macro.parameters.end(), name) ==
                macro.parameters.end())
                fail("macro \"" + macro.name + "\" has no parameter \"" + name + "\"");
        }
        Scope inner;
        inner.outer = &top_;
        for (const auto& [known, around] : callers_)
            if (known == &macro) inner.outer = around;
        if (caller != nullptr) inner.set("caller", caller);
        const std::size_t first_default = count - macro.defaults.size();
        for (std::size_t i = 0; i < count; ++i) {
            const std::string& name = macro.parameters[i];
            Value value = arguments.get(i, name, Value::undefined("\"" + name + "\""));
            if (value.is_undefined() && i >= first_default)
                value = evaluate(*macro.defaults[i - first_default], inner);
            inner.set(name, std::move(value));
        }
        const int owner_before = owner_;
        for (std::size_t i = 0; i < inner.names.size() && owner_ < 0; ++i)
            owner_ = inner.names[i].second.message();
        MarkedText out;
        if (caller != nullptr) callers_.emplace_back(caller, &scope);
        run_block(macro.body, inner, out);
        if (caller != nullptr) callers_.pop_back();
        owner_ = owner_before;
        return out;
    }

    Budget budget_;
    Scope global_;
    Scope top_;
    std::vector<std::pair<const Macro*, const Scope*>> callers_;  // of call blocks at work
    const Scope* recursive_scope_ = nullptr;                      // around the recursive loop
    std::optional<std::int64_t> now_;
    int line_ = 1;
    int owner_ = -1;          // the message that the template is at
    bool may_claim_ = false;  // within a loop that is at none yet
};

}  // namespace

MarkedText render(const Block& program, std::vector<std::pair<std::string, Value>> variables,
                  std::optional<std::int64_t> now) {
    return Evaluator(std::move(variables), now).run(program);
}

}  // namespace garam::jinja
