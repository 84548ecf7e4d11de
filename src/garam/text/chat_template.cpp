#include "garam/text/chat_template.h"

#include <algorithm>

#include "garam/core/error.h"
#include "garam/text/jinja/evaluator.h"
#include "garam/text/jinja/parser.h"
#include "garam/text/unicode.h"

namespace garam {
namespace {

using jinja::Mark;
using jinja::Origin;

// The bytes of `message`'s content, given all marks in order. A template may render a content in parts
// (a thought apart from the answer): all of it counts, unless another message's content stands between;
// then the last part does.
std::optional<ByteSpan> content_of(const std::vector<Mark>& contents, int message) {
    const bool has_text = std::any_of(contents.begin(), contents.end(), [&](const Mark& mark) {
        return mark.message == message && mark.begin < mark.end;
    });
    std::optional<ByteSpan> span;
    for (auto mark = contents.rbegin(); mark != contents.rend(); ++mark) {
        const bool empty = mark->begin == mark->end;
        if (mark->message == message) {
            if (empty && has_text) continue;
            span = ByteSpan{mark->begin, span ? span->end : mark->end};
        } else if (span && !empty) {
            break;
        }
    }
    return span;
}

constexpr int kNobody = -1;

// Texts within it come from that message.
jinja::Value value_of(const Json& json, int message, Origin origin) {
    if (json.is_null()) return jinja::Value::none();
    if (json.is_bool()) return json.boolean();
    if (json.is_int()) return json.integer();
    if (json.is_number()) return json.number();
    if (json.is_string()) {
        if (message == kNobody) return json.string();
        return jinja::MarkedText(json.string(), message, origin);
    }
    if (json.is_object()) {
        jinja::Dict dict;
        for (const auto& [name, member] : json.object())
            dict.entries.emplace_back(name, value_of(member, message, origin));
        return dict;
    }
    jinja::List list;
    for (const Json& item : json.array())
        list.items.push_back(value_of(item, message, origin));
    return list;
}

const Json* member_of(const ChatMessage& message, std::string_view name) {
    for (const auto& [known, member] : message.more)
        if (known == name) return &member;
    return nullptr;
}

// As Transformers gives a message to the template: without members that are null, and with its reasoning
// under the names that templates read.
jinja::Value dict_of(const ChatMessage& message, int place) {
    jinja::Dict dict;
    dict.message = place;
    const auto put = [&](std::string_view name, const Json& member) {
        if (!member.is_null() && dict.find(name) == nullptr)
            dict.entries.emplace_back(
                name, value_of(member, place, name == "content" ? Origin::content : Origin::data));
    };
    Json reasoning;
    for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
        const Json* given = member_of(message, name);
        if (reasoning.is_null() && given != nullptr) reasoning = *given;
    }
    const Json* thinking = member_of(message, "thinking");
    if (!reasoning.is_null())
        put("thinking", thinking != nullptr && !thinking->is_null() ? *thinking : reasoning);
    dict.entries.emplace_back("role", jinja::MarkedText(message.role, place, Origin::literal));
    if (member_of(message, "content") == nullptr)
        dict.entries.emplace_back("content", jinja::MarkedText(message.content, place));
    for (const auto& [name, member] : message.more)
        if (name != "role") put(name, member);
    put("reasoning_content", reasoning);
    return dict;
}

bool has_generation(const jinja::Block& block) {
    return std::any_of(block.begin(), block.end(), [](const jinja::Statement& statement) {
        return statement.kind == jinja::StatementKind::generation ||
               has_generation(statement.body) || has_generation(statement.otherwise) ||
               (statement.macro != nullptr && has_generation(statement.macro->body)) ||
               std::any_of(statement.branches.begin(), statement.branches.end(),
                           [](const auto& branch) { return has_generation(branch.second); });
    });
}

// What the template sees. Throws jinja::Failure for values that are nested too deeply.
using Variables = std::vector<std::pair<std::string, jinja::Value>>;
Variables variables_of(const std::vector<ChatMessage>& messages,
                       const ChatTemplate::Options& options) {
    jinja::List list;
    for (std::size_t i = 0; i < messages.size(); ++i)
        list.items.push_back(dict_of(messages[i], static_cast<int>(i)));
    Variables variables = {{"messages", std::move(list)},
                           {"add_generation_prompt", options.add_generation_prompt},
                           {"bos_token", options.bos_token},
                           {"eos_token", options.eos_token},
                           {"tools", value_of(options.tools, kNobody, Origin::data)},
                           {"documents", jinja::Value::none()}};
    for (const auto& [name, value] : options.variables)
        variables.emplace_back(name, value_of(value, kNobody, Origin::data));
    return variables;
}

}  // namespace

ChatMessage ChatMessage::from_json(const Json& json, const std::string& where) {
    ChatMessage message;
    message.role = json.at("role", where).string(where + ": role");
    bool has_content = false;
    for (const auto& [name, member] : json.object(where)) {
        if (name == "role" || (name == "content" && member.is_null())) continue;
        if (name == "train") {
            if (!member.is_null()) message.train = member.boolean(where + ": train");
        } else if (name == "weight") {  // OpenAI's
            if (!member.is_null() && member.number(where + ": weight") != 0 && member.number() != 1)
                throw Error(where + ": weight must be 0 or 1, not " + member.dump());
            message.train = message.train && (member.is_null() || member.number() != 0);
        } else if (name == "content" && member.is_string()) {
            message.content = member.string();
            has_content = true;
        } else if (name == "content" && member.is_array()) {
            for (const Json& part : member.array()) {
                const Json* type = part.find("type");
                if (type == nullptr || !type->is_string()) continue;
                for (const char* medium : {"image", "audio", "video", "file"}) {
                    if (type->string().find(medium) != std::string::npos)
                        throw Error(where + ": content has a part of the type " + type->dump() +
                                    ": only texts are supported");
                }
            }
            message.more.emplace_back(name, member);
            has_content = true;
        } else if (name == "content") {
            throw Error(where + ": content must be a text, null or a list of parts, not " +
                        member.kind());
        } else if (!member.is_null()) {
            message.more.emplace_back(name, member);
        }
    }
    if (!has_content) message.more.emplace_back("content", Json());
    return message;
}

struct ChatTemplate::Program {
    std::string source_name;
    jinja::Block block;
    bool marks_generation = false;

    Program(std::string_view source, const std::string& name);
};

const ChatTemplate::Program& ChatTemplate::program(const Options& options) const {
    return tool_program_ != nullptr && !options.tools.is_null() ? *tool_program_ : *program_;
}

bool ChatTemplate::marks_generation(const Options& options) const {
    return program(options).marks_generation;
}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

ChatTemplate::ChatTemplate(std::string_view source, const std::string& source_name)
    : program_(std::make_unique<Program>(source, source_name)) {}

ChatTemplate::ChatTemplate(const ChatTemplateSource& source, const std::string& source_name)
    : ChatTemplate(source.source, source_name) {
    if (!source.tool_use.empty())
        tool_program_ = std::make_unique<Program>(source.tool_use, source_name + " (tool_use)");
}

ChatTemplate::Program::Program(std::string_view source, const std::string& name)
    : source_name(name) {
    constexpr std::size_t kMaxSource = std::size_t{1} << 20;
    if (source.size() > kMaxSource)
        throw Error(source_name + ": a chat template of more than 1 MiB");
    if (const std::size_t bad = first_invalid_utf8(source); bad != std::string_view::npos)
        throw Error(source_name + ": the chat template is not valid UTF-8 at byte " +
                    std::to_string(bad));
    try {
        block = jinja::parse(source);
        marks_generation = has_generation(block);
    } catch (const jinja::SyntaxFailure& failure) {
        throw Error(source_name + ": line " + std::to_string(failure.line) + ": " +
                    failure.message);
    }
}

RenderedChat ChatTemplate::render(const std::vector<ChatMessage>& messages,
                                  const Options& options) const {
    const Program& used = program(options);
    for (std::size_t i = 0; i < messages.size(); ++i) {
        for (const std::string* text : {&messages[i].role, &messages[i].content}) {
            if (first_invalid_utf8(*text) != std::string::npos)
                throw Error("message " + std::to_string(i + 1) + " is not valid UTF-8");
        }
    }
    jinja::MarkedText text;
    try {
        text = jinja::render(used.block, variables_of(messages, options), options.now);
    } catch (const jinja::Failure& failure) {
        throw Error("the chat's values: " + failure.message);
    } catch (const jinja::RenderFailure& failure) {
        throw Error(used.source_name + ": line " + std::to_string(failure.line) + ": " +
                    failure.message);
    }
    RenderedChat chat;
    std::vector<Mark> contents;
    std::copy_if(text.marks().begin(), text.marks().end(), std::back_inserter(contents),
                 [](const Mark& mark) { return mark.origin == Origin::content; });
    std::size_t place = 0;
    for (std::size_t i = 0; i < messages.size(); ++i) {
        const auto span = content_of(contents, static_cast<int>(i));
        chat.contents.push_back(span.value_or(ByteSpan{place, place}));
        chat.present.push_back(span.has_value());
        place = chat.contents.back().end;
    }
    chat.marks = text.marks();
    chat.text = text.text();
    return chat;
}

}  // namespace garam
