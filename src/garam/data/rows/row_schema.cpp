#include "garam/data/rows/row_schema.h"

#include <algorithm>
#include <initializer_list>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "garam/core/error.h"

namespace garam {
namespace {

// As it stands in messages: whole when short.
std::string shown(const Json& value) {
    constexpr std::size_t kBytes = 48;
    std::string text = value.dump();
    if (text.size() <= kBytes) return text;
    std::size_t end = kBytes;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0u) == 0x80u)
        --end;
    return text.substr(0, end) + "…";
}

std::string quoted(const std::string& name) {
    return Json(name).dump();
}

struct Column {
    std::string name;
    std::string type;
    const Json* example = nullptr;  // the first value that is not null
    const ColumnSchema* schema = nullptr;
};

// A list of maps that are turns of a chat.
bool is_chat(const Json& value, const std::string& role, const std::string& content) {
    if (!value.is_array() || value.array().empty()) return false;
    const Json& turn = value.array().front();
    return (turn.find(role) != nullptr && turn.find(content) != nullptr) ||
           (turn.find("role") != nullptr &&
            (turn.find("content") != nullptr || turn.find("tool_calls") != nullptr)) ||
           (turn.find("from") != nullptr && turn.find("value") != nullptr);
}

bool is_text(const Column& column) {
    if (column.example != nullptr) return column.example->is_string();
    return column.type.find("string") == 0 || column.type.find("large_string") == 0;
}

class Recogniser {
  public:
    Recogniser(const std::vector<ColumnSchema>& declared, const std::vector<Json>& rows,
               const DataConfig& config, const std::string& where)
        : declared_(!declared.empty()), rows_(rows), config_(config), where_(where) {
        std::unordered_map<std::string_view, std::size_t> places;  // of columns
        for (const ColumnSchema& column : declared) {
            places.emplace(column.name, columns_.size());
            columns_.push_back({column.name, column.type, nullptr, &column});
        }
        for (const Json& row : rows) {
            for (const auto& [name, value] : row.object()) {
                if (value.is_null()) {
                    if (!declared_) nulls_.push_back(name);
                    continue;
                }
                const auto known = places.find(name);
                if (known == places.end()) {
                    if (declared_) continue;
                    places.emplace(name, columns_.size());
                    columns_.push_back({name, value.kind(), &value, nullptr});
                    continue;
                }
                Column& column = columns_[known->second];
                if (column.example == nullptr) column.example = &value;
            }
        }
        const std::string text = mapped("text");
        out_.text = text.empty() ? config.text_column : text;
        names_text_ = !text.empty() || config.text_column != "text";
        const std::string label = mapped("label");
        out_.label = label.empty() ? config.label_column : label;
    }

    RowColumns run() && {
        const std::string text = std::exchange(out_.text, {});
        const std::string label = std::exchange(out_.label, {});
        choose(text, label);
        if (out_.shape != RowShape::token_ids && out_.shape != RowShape::text) {
            out_.system = aside("system");
            out_.tools = aside("tools");
            out_.chat_template_kwargs = aside("chat_template_kwargs");
        }
        if (const Column* column = column_of(out_.label); column != nullptr && column->schema)
            out_.class_names = column->schema->class_names;
        out_.summary = summary();
        return std::move(out_);
    }

  private:
    std::string mapped(std::string_view ours) const {
        for (const auto& [name, theirs] : config_.columns)
            if (name == ours) return theirs;
        return {};
    }

    const Column* column_of(std::string_view name) const {
        if (name.empty()) return nullptr;
        for (const Column& column : columns_)
            if (column.name == name) return &column;
        return nullptr;
    }

    // Also a path into a column.
    bool has(std::string_view name) const {
        if (name.empty()) return false;
        if (column_of(name) != nullptr) return true;
        const std::size_t dot = name.find('.');
        if (dot == std::string_view::npos) return false;
        for (const Json& row : rows_)
            if (find_column(row, name) != nullptr) return true;
        const Column* const head = column_of(name.substr(0, dot));
        return head != nullptr && head->example == nullptr;
    }

    // A name that the config gives for `ours` must be there; without one, `ours` itself may be.
    std::string take(const char* ours) const {
        const std::string theirs = mapped(ours);
        if (!theirs.empty() && !has(theirs))
            fail("data.columns." + std::string(ours) + " names the column " + quoted(theirs) +
                 ", which is not there");
        if (!theirs.empty()) return theirs;
        return has(ours) ? ours : "";
    }

    // What need not be in every row.
    std::string aside(const char* ours) const {
        const std::string theirs = mapped(ours);
        if (theirs.empty()) return has(ours) ? ours : "";
        if (declared_ && !has(theirs)) return take(ours);
        return theirs;
    }

    std::vector<std::string> present(std::initializer_list<const char*> names) const {
        std::vector<std::string> found;
        for (const char* name : names)
            if (column_of(name) != nullptr) found.emplace_back(name);
        return found;
    }

    bool chat(const Column& column) const {
        const std::string role = mapped("role");
        const std::string content = mapped("content");
        if (column.example != nullptr &&
            !(column.example->is_array() && column.example->array().empty()))
            return is_chat(*column.example, role.empty() ? "role" : role,
                           content.empty() ? "content" : content);
        const std::string& type = column.type;
        return type.find("struct<") != std::string::npos &&
               ((type.find("role:") != std::string::npos &&
                 type.find("content:") != std::string::npos) ||
                (type.find("from:") != std::string::npos &&
                 type.find("value:") != std::string::npos));
    }

    void choose(const std::string& text, const std::string& label) {
        if (mapped_shape()) return;
        if (!mapped("text").empty() && !has(text)) take("text");
        if (!mapped("label").empty()) take("label");
        if (names_text_ && has(text)) return text_and_label(text, label);

        if (column_of("messages") != nullptr) return messages("messages");
        for (const std::string& name : present({"conversations", "conversation"}))
            if (chat(*column_of(name))) return messages(name);
        if (column_of("prompt") != nullptr && column_of("completion") != nullptr) {
            const Column* const judged = column_of("label");
            if (judged != nullptr && judged->example != nullptr && judged->example->is_bool())
                refuse_preferences("answers with a judgement (label)");
            return completion();
        }
        if (column_of("chosen") != nullptr && column_of("rejected") != nullptr)
            refuse_preferences("pairs of answers (chosen, rejected)");
        if (column_of("input_ids") != nullptr) {
            if (has(text))
                ambiguous({"data.columns.input_ids=input_ids", "data.columns.text=" + text});
            return token_ids();
        }
        if (has(text) && !label.empty() && has(label)) return text_and_label(text, label);
        if (question_and_answer()) return;
        std::vector<const Column*> chats;
        for (const Column& column : columns_)
            if (chat(column)) chats.push_back(&column);
        if (has(text)) {
            if (!chats.empty())
                ambiguous({"data.columns.text=" + text, "data.columns.messages=" + chats[0]->name});
            return text_and_label(text, label);
        }
        if (chats.size() == 1) return messages(chats[0]->name);
        if (declared_ && columns_.size() == 1 && is_text(columns_[0])) {
            out_.shape = RowShape::text;
            out_.text = columns_[0].name;
            return guard_instruction(label);
        }
        unknown(text, label);
    }

    // By the columns that the config names. It may name those of several sources that differ: the first
    // shape counts whose columns are here.
    bool mapped_shape() {
        const std::vector<std::vector<const char*>> shapes = {{"messages"},
                                                              {"prompt", "completion"},
                                                              {"instruction", "input", "output"},
                                                              {"input_ids"}};
        const auto named = [this](const char* ours) { return !mapped(ours).empty(); };
        const auto absent = [&](const char* ours) { return named(ours) && !has(mapped(ours)); };
        std::size_t best = shapes.size();
        for (std::size_t i = shapes.size(); i-- > 0;) {
            if (std::none_of(shapes[i].begin(), shapes[i].end(), named)) continue;
            const bool here = std::none_of(shapes[i].begin(), shapes[i].end(), absent);
            if (here || best == shapes.size()) best = i;
        }
        if (best == 0) messages(take("messages"));
        if (best == 1) completion();
        if (best == 2) instruction();
        if (best == 3) token_ids();
        return best < shapes.size();
    }

    void messages(std::string name) {
        out_.shape = RowShape::messages;
        out_.messages = std::move(name);
    }

    void completion() {
        out_.shape = RowShape::completion;
        out_.prompt = take("prompt");
        out_.completion = take("completion");
        if (out_.completion.empty()) out_.completion = answer({}, "completion");
        if (out_.prompt.empty()) out_.prompt = question("prompt");
    }

    void instruction() {
        out_.shape = RowShape::instruction;
        out_.instruction = take("instruction");
        out_.input = take("input");
        out_.output = take("output");
        if (out_.output.empty()) out_.output = answer({}, "output");
        if (out_.instruction.empty() && !out_.input.empty())
            std::swap(out_.instruction, out_.input);
        if (out_.instruction.empty()) out_.instruction = question("instruction");
    }

    // The one column beside those that are mapped which can be it.
    std::string answer(std::vector<std::string> found, const char* ours) const {
        if (found.empty()) found = present({"output", "completion", "response", "answer"});
        return only(found, ours);
    }
    std::string question(const char* ours) const {
        return only(present({"instruction", "prompt", "question", "query"}), ours);
    }
    std::string only(std::vector<std::string> found, const char* ours) const {
        std::erase_if(found, [&](const std::string& name) {
            return std::any_of(config_.columns.begin(), config_.columns.end(),
                               [&](const auto& one) { return one.second == name; });
        });
        if (found.size() == 1) return found[0];
        fail("data.columns." + std::string(ours) + " must name a column, too");
    }

    void token_ids() {
        out_.shape = RowShape::token_ids;
        out_.input_ids = take("input_ids");
        out_.labels = take("labels");
        out_.attention_mask = take("attention_mask");
        out_.completion_mask = take("completion_mask");
        out_.assistant_masks = take("assistant_masks");
    }

    // Else a label under another name would be a model trained on the texts, without a word.
    void guard_instruction(const std::string& label) const {
        if (config_.instruction.empty() || label.empty()) return;
        fail("data.instruction is set, but there is no column " + quoted(label) +
             " (data.label_column); data.instruction=\"\" trains on plain text");
    }

    void text_and_label(const std::string& text, const std::string& label) {
        out_.text = text;
        if (label.empty() || !has(label)) {
            out_.shape = RowShape::text;
            return guard_instruction(label);
        }
        out_.shape = RowShape::labelled;
        out_.label = label;
        if (!config_.instruction.empty()) return;
        throw Error(where_ + ": the row has a text and a label (" + quoted(text) + ", " +
                    quoted(label) +
                    "): set data.instruction to what is asked about the text, or "
                    "data.label_column=\"\" to train on the text alone");
    }

    // A question and an answer under one of their usual names, where no second column could be either.
    bool question_and_answer() {
        const std::vector<std::string> answers =
            present({"output", "completion", "response", "answer"});
        std::vector<std::string> questions =
            present({"instruction", "prompt", "question", "query"});
        std::vector<std::string> inputs = present({"input", "context"});
        if (questions.empty() && inputs.size() == 1 && inputs[0] == "input")
            questions = std::exchange(inputs, {});
        if (questions.empty() || answers.empty()) return false;
        const bool takes_input = questions[0] == "instruction";
        if (questions.size() > 1 || answers.size() > 1 || inputs.size() > 1 ||
            (!inputs.empty() && !takes_input)) {
            std::string keys = "data.columns.instruction=" + questions[0];
            if (!inputs.empty()) keys += " data.columns.input=" + inputs[0];
            ambiguous({keys + " data.columns.output=" + answers[0]});
        }
        for (const std::string& name : {questions[0], answers[0]})
            if (!is_text(*column_of(name))) return false;
        out_.shape = RowShape::instruction;
        out_.instruction = questions[0];
        if (!inputs.empty()) out_.input = inputs[0];
        out_.output = answers[0];
        return true;
    }

    // The columns, each with its type and a value.
    std::string listed() const {
        constexpr std::size_t kShown = 16;
        if (columns_.empty() && nulls_.empty()) return "It has no columns";
        if (columns_.empty()) return "Its column " + quoted(nulls_[0]) + " is null";
        std::string text = columns_.size() == 1 ? "The column is " : "The columns are ";
        for (std::size_t i = 0; i < columns_.size() && i < kShown; ++i) {
            const Column& column = columns_[i];
            text += (i == 0 ? "" : ", ") + quoted(column.name) + " (" + column.type;
            if (column.example != nullptr) text += ": " + shown(*column.example);
            text += ")";
        }
        return columns_.size() > kShown ? text + ", …" : text;
    }

    [[noreturn]] void fail(const std::string& what) const {
        throw Error(where_ + ": " + what + ". " + listed());
    }

    [[noreturn]] void ambiguous(std::initializer_list<std::string> choices) const {
        std::string text;
        for (const std::string& choice : choices)
            text += (text.empty() ? "" : ", or ") + choice;
        fail("more than one column could be what is trained on: say which, for example " + text);
    }

    [[noreturn]] void refuse_preferences(const std::string& what) const {
        fail("rows of " + what +
             " are for preference training (DPO, KTO), which is not supported; to train on one "
             "of the answers, name it: data.columns.prompt=prompt data.columns.completion=chosen, "
             "or "
             "data.columns.messages=chosen where it is a whole chat");
    }

    // Suggests keys by what the columns hold.
    [[noreturn]] void unknown(const std::string& text, const std::string& label) const {
        std::string advice;
        std::vector<std::string> texts;
        for (const Column& column : columns_) {
            if (chat(column))
                advice += (advice.empty() ? "" : " or ") + ("data.columns.messages=" + column.name);
            if (is_text(column)) texts.push_back(column.name);
        }
        const auto add = [&advice](const std::string& keys) {
            advice += (advice.empty() ? "" : ", or ") + keys;
        };
        if (texts.size() >= 2) {
            add("data.columns.instruction=" + texts[0] + " data.columns.output=" + texts[1] +
                " (a chat), or data.columns.prompt=" + texts[0] +
                " data.columns.completion=" + texts[1] + " (plain text)");
        }
        if (!texts.empty()) add("data.columns.text=" + texts[0]);
        if (advice.empty()) advice = "data.columns.messages=..., or data.columns.text=...";
        std::string shapes =
            "messages; prompt and completion; instruction and output; input_ids; " + text;
        if (!label.empty()) shapes += "; " + text + " and " + label + " with data.instruction";
        fail("no row that can be trained on: supported are " + shapes +
             ". Name the columns that count, for example " + advice);
    }

    std::string summary() {
        std::vector<std::string> used;
        std::string text;
        const auto add = [&](const char* ours, const std::string& theirs) {
            if (theirs.empty()) return;
            used.push_back(theirs);
            text += (text.empty() ? "" : ", ") + std::string(ours);
            if (theirs != ours) text += " from " + quoted(theirs);
        };
        add("messages", out_.messages);
        if (const Column* column = column_of(out_.messages);
            column != nullptr && column->example != nullptr && column->example->is_array() &&
            !column->example->array().empty() &&
            column->example->array()[0].find("from") != nullptr)
            text += " (ShareGPT)";
        add("prompt", out_.prompt);
        add("completion", out_.completion);
        add("instruction", out_.instruction);
        add("input", out_.input);
        add("output", out_.output);
        add("text", out_.text);
        add("label", out_.label);
        add("input_ids", out_.input_ids);
        add("labels", out_.labels);
        add("attention_mask", out_.attention_mask);
        add("completion_mask", out_.completion_mask);
        add("assistant_masks", out_.assistant_masks);
        add("system", out_.system);
        add("tools", out_.tools);
        add("chat_template_kwargs", out_.chat_template_kwargs);
        std::vector<std::string> unused;
        for (const Column& column : columns_) {
            const bool taken = std::any_of(used.begin(), used.end(), [&](const std::string& name) {
                return name == column.name || name.starts_with(column.name + ".");
            });
            (taken ? out_.used : unused).push_back(column.name);
        }
        if (unused.empty()) return text;
        constexpr std::size_t kShown = 8;
        text += "; " + std::to_string(unused.size()) +
                (unused.size() == 1 ? " column" : " columns") + " unused: ";
        for (std::size_t i = 0; i < unused.size() && i < kShown; ++i)
            text += (i == 0 ? "" : ", ") + unused[i];
        return unused.size() > kShown ? text + ", …" : text;
    }

    bool declared_;
    const std::vector<Json>& rows_;
    const DataConfig& config_;
    const std::string& where_;
    std::vector<Column> columns_;
    std::vector<std::string>
        nulls_;  // of rows with keys of their own: what is null counts as absent
    bool names_text_ = false;
    RowColumns out_;
};

}  // namespace

const Json* find_column(const Json& row, std::string_view name) {
    if (name.empty()) return nullptr;
    const auto value_of = [](const Json* value) {
        return value == nullptr || value->is_null() ? nullptr : value;
    };
    if (const Json* whole = row.find(name)) return value_of(whole);
    const Json* value = &row;
    for (;;) {
        const std::size_t dot = name.find('.');
        value = value_of(value->find(name.substr(0, dot)));
        if (value == nullptr || dot == std::string_view::npos) return value;
        name.remove_prefix(dot + 1);
    }
}

RowColumns recognise_rows(const std::vector<ColumnSchema>& declared, const std::vector<Json>& rows,
                          const DataConfig& config, const std::string& where) {
    return Recogniser(declared, rows, config, where).run();
}

RowRecogniser::RowRecogniser(const RowSchema& schema, const std::vector<Json>& first_rows,
                             const DataConfig& config, const std::string& source)
    : config_(config) {
    const std::string unknown =
        schema.unknown_files.empty()
            ? ""
            : "; files not read, of no known format: " + schema.unknown_files;
    if (!schema.columns.empty()) {
        declared_ = std::make_shared<const RowColumns>(
            recognise_rows(schema.columns, first_rows, config, source));
        summary_ = declared_->summary + unknown;
        return;
    }
    // All keys of the first rows together, or those of one alone where shapes differ.
    for (std::size_t count = first_rows.size(); count > 0; count = count > 1 ? 1 : 0) {
        try {
            summary_ = recognise_rows({},
                                      {first_rows.begin(),
                                       first_rows.begin() + static_cast<std::ptrdiff_t>(count)},
                                      config, source)
                           .summary +
                       unknown;
            return;
        } catch (const Error&) {
            // The row itself says so when it is its turn.
        }
    }
}

bool RowRecogniser::fits(const Known& known, const Json& row) {
    const Json::Object& members = row.object();
    return std::equal(known.keys.begin(), known.keys.end(), members.begin(), members.end(),
                      [](const auto& key, const Json::Member& member) {
                          return key.second == member.second.is_null() && key.first == member.first;
                      });
}

std::shared_ptr<const RowColumns> RowRecogniser::columns_of(const Json& row,
                                                            const std::string& where) const {
    // Data in which more rows than these differ has names for keys: it is looked at row by row.
    constexpr std::size_t kMaxKnown = 64;
    if (declared_) return declared_;
    std::size_t count = 0;
    {
        const std::shared_lock lock(lock_);
        for (const auto& known : known_)
            if (fits(*known, row)) return {known, &known->columns};
        count = known_.size();
    }
    const auto fresh = std::make_shared<Known>();
    for (const auto& [name, value] : row.object(where))
        fresh->keys.emplace_back(name, value.is_null());
    fresh->columns = recognise_rows({}, {row}, config_, where);
    if (count < kMaxKnown) {
        const std::unique_lock lock(lock_);
        known_.push_back(fresh);
    }
    return {fresh, &fresh->columns};
}

const std::vector<std::string>& RowRecogniser::class_names() const {
    static const std::vector<std::string> kNone;
    return declared_ ? declared_->class_names : kNone;
}

}  // namespace garam
