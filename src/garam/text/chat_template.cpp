#include "garam/text/chat_template.h"

#include <algorithm>

#include "garam/core/error.h"
#include "garam/text/jinja/evaluator.h"
#include "garam/text/jinja/parser.h"
#include "garam/text/unicode.h"

namespace garam {
namespace {

using jinja::Mark;

// The bytes of `message`'s content, given all marks in order. A template may render a content in parts
// (a thought apart from the answer): all of it counts, unless another message stands between; then the
// last part does.
std::optional<ByteSpan> content_of(const std::vector<Mark>& marks, int message) {
    const bool has_text = std::any_of(marks.begin(), marks.end(), [&](const Mark& mark) {
        return mark.message == message && mark.begin < mark.end;
    });
    std::optional<ByteSpan> span;
    for (auto mark = marks.rbegin(); mark != marks.rend(); ++mark) {
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

jinja::Value value_of(const Json& json);

jinja::Value dict_of(const Json::Object& members) {
    jinja::Dict dict;
    for (const auto& [name, member] : members)
        dict.entries.emplace_back(name, value_of(member));
    return dict;
}

jinja::Value value_of(const Json& json) {
    if (json.is_null()) return jinja::Value::none();
    if (json.is_bool()) return json.boolean();
    if (json.is_int()) return json.integer();
    if (json.is_number()) return json.number();
    if (json.is_string()) return json.string();
    if (json.is_object()) return dict_of(json.object());
    jinja::List list;
    for (const Json& item : json.array())
        list.items.push_back(value_of(item));
    return list;
}

}  // namespace

ChatMessage ChatMessage::from_json(const Json& json, const std::string& where) {
    ChatMessage message;
    message.role = json.at("role", where).string(where + ": role");
    bool has_content = false;
    for (const auto& [name, member] : json.object(where)) {
        if (name == "role") continue;
        if (name == "train") {
            if (!member.is_null()) message.train = member.boolean(where + ": train");
        } else if (name == "content" && member.is_string()) {
            message.content = member.string();
            has_content = true;
        } else if (name == "content" && member.is_array()) {
            message.more.emplace_back(name, member);
            has_content = true;
        } else if (name == "content" && !member.is_null()) {
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
};

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

ChatTemplate::ChatTemplate(std::string_view source, const std::string& source_name)
    : program_(std::make_unique<Program>()) {
    constexpr std::size_t kMaxSource = std::size_t{1} << 20;
    if (source.size() > kMaxSource)
        throw Error(source_name + ": a chat template of more than 1 MiB");
    if (const std::size_t bad = first_invalid_utf8(source); bad != std::string_view::npos)
        throw Error(source_name + ": the chat template is not valid UTF-8 at byte " +
                    std::to_string(bad));
    program_->source_name = source_name;
    try {
        program_->block = jinja::parse(source);
    } catch (const jinja::SyntaxFailure& failure) {
        throw Error(source_name + ": line " + std::to_string(failure.line) + ": " +
                    failure.message);
    }
}

RenderedChat ChatTemplate::render(const std::vector<ChatMessage>& messages,
                                  const Options& options) const {
    jinja::List list;
    for (std::size_t i = 0; i < messages.size(); ++i) {
        for (const std::string* text : {&messages[i].role, &messages[i].content}) {
            if (first_invalid_utf8(*text) != std::string::npos)
                throw Error("message " + std::to_string(i + 1) + " is not valid UTF-8");
        }
        jinja::Dict message;
        message.entries.emplace_back("role", messages[i].role);
        const auto content =
            std::find_if(messages[i].more.begin(), messages[i].more.end(),
                         [](const Json::Member& member) { return member.first == "content"; });
        if (content == messages[i].more.end())
            message.entries.emplace_back(
                "content", jinja::MarkedText(messages[i].content, static_cast<int>(i)));
        for (const auto& [name, member] : messages[i].more)
            message.entries.emplace_back(name, value_of(member));
        list.items.emplace_back(std::move(message));
    }
    std::vector<std::pair<std::string, jinja::Value>> variables = {
        {"messages", std::move(list)},
        {"add_generation_prompt", options.add_generation_prompt},
        {"bos_token", options.bos_token},
        {"eos_token", options.eos_token},
        {"tools", value_of(options.tools)},
        {"documents", jinja::Value::none()}};
    for (const auto& [name, value] : options.variables)
        variables.emplace_back(name, value_of(value));
    jinja::MarkedText text;
    try {
        text = jinja::render(program_->block, std::move(variables));
    } catch (const jinja::RenderFailure& failure) {
        throw Error(program_->source_name + ": line " + std::to_string(failure.line) + ": " +
                    failure.message);
    }
    RenderedChat chat;
    std::size_t place = 0;
    for (std::size_t i = 0; i < messages.size(); ++i) {
        const auto span = content_of(text.marks(), static_cast<int>(i));
        chat.contents.push_back(span.value_or(ByteSpan{place, place}));
        chat.present.push_back(span.has_value());
        place = chat.contents.back().end;
    }
    chat.text = text.text();
    return chat;
}

}  // namespace garam
