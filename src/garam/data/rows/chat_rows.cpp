#include "garam/data/rows/chat_rows.h"

#include <algorithm>
#include <string_view>

#include "garam/core/error.h"

namespace garam {
namespace {

constexpr const char* kFunctionCall = "function_call";

// Names of data sets for the roles that templates know.
std::string role_of(const std::string& theirs, const DataConfig& config) {
    for (const auto& [name, ours] : config.roles)
        if (name == theirs) return ours;
    struct Alias {
        std::string_view theirs;
        const char* ours;
    };
    constexpr Alias kAliases[] = {{"human", "user"},         {"gpt", "assistant"},
                                  {"chatgpt", "assistant"},  {"bing", "assistant"},
                                  {"bard", "assistant"},     {"bot", "assistant"},
                                  {"observation", "tool"},   {"function_response", "tool"},
                                  {"tool_response", "tool"}, {"function", "tool"}};
    for (const Alias& alias : kAliases)
        if (alias.theirs == theirs) return alias.ours;
    return theirs;
}

std::string name_in(const DataConfig& config, std::string_view ours) {
    for (const auto& [name, theirs] : config.columns)
        if (name == ours) return theirs;
    return {};
}

// The call as OpenAI writes it, from {"name": ..., "arguments": ...} as text or JSON, or a list of these.
// Null when it is no such thing.
Json tool_calls_of(const Json& content) {
    Json calls = content;
    if (content.is_string()) {
        try {
            calls = Json::parse(content.string(), "function_call");
        } catch (const Error&) {
            return {};
        }
    }
    if (calls.is_object()) calls = Json(Json::Array{calls});
    if (!calls.is_array()) return {};
    Json list{Json::Array{}};
    for (const Json& call : calls.array()) {
        const Json* const name = call.find("name");
        if (name == nullptr || !name->is_string()) return {};
        Json function;
        function.set("name", *name);
        const Json* const arguments = call.find("arguments");
        function.set("arguments", arguments == nullptr ? Json(Json::Object{}) : *arguments);
        Json one;
        one.set("type", "function");
        one.set("function", std::move(function));
        list.push_back(std::move(one));
    }
    return list.array().empty() ? Json() : list;
}

// Role and content under the names that ChatMessage reads.
Json renamed(const Json& turn, const DataConfig& config, const std::string& where) {
    std::string role = name_in(config, "role");
    std::string content = name_in(config, "content");
    const bool own_names = !role.empty() || !content.empty();
    if (role.empty()) role = "role";
    if (content.empty()) content = "content";
    if (!own_names && turn.find("role") == nullptr && turn.find("from") != nullptr) {
        role = "from";
        content = "value";
    }
    Json message{Json::Object{}};
    for (const auto& [name, value] : turn.object(where)) {
        if (name == role)
            message.set("role", value);
        else if (name == content)
            message.set("content", value);
        else if (name != "role" && name != "content")
            message.set(name, value);
    }
    const Json* const said = message.find("role");
    if (said == nullptr || said->is_null())
        throw Error(where + ": the turn has no " + Json(role).dump() + " (data.columns.role)");
    const std::string& theirs = said->string(where + ": " + role);
    const bool says =
        std::any_of(message.object().begin(), message.object().end(),
                    [](const auto& one) { return one.first != "role" && !one.second.is_null(); });
    if (!says)
        throw Error(where + ": the turn has no " + Json(content).dump() +
                    " (data.columns.content)");
    if (role_of(theirs, config) == kFunctionCall) {
        const Json* const call = message.find("content");
        Json calls = call == nullptr ? Json() : tool_calls_of(*call);
        message.set("role", "assistant");
        if (!calls.is_null()) {
            message.set("content", Json());
            message.set("tool_calls", std::move(calls));
        }
        return message;
    }
    message.set("role", role_of(theirs, config));
    return message;
}

// A turn that needs no other names, as most are.
bool is_as_read(const Json& turn, const DataConfig& config) {
    const Json* const role = turn.find("role");
    const Json* const content = turn.find("content");
    return role != nullptr && role->is_string() && content != nullptr && content->is_string() &&
           name_in(config, "role").empty() && name_in(config, "content").empty() &&
           role->string() != kFunctionCall && role_of(role->string(), config) == role->string();
}

}  // namespace

Json json_of(const Json& value, const std::string& where) {
    if (!value.is_string()) return value;
    try {
        return Json::parse(value.string(), where);
    } catch (const Error& error) {
        throw Error(std::string(error.what()) + " (a text here must be JSON)");
    }
}

std::vector<ChatMessage> messages_of(const Json& value, const DataConfig& config,
                                     const std::string& where) {
    const Json parsed = value.is_string() ? json_of(value, where) : Json();
    const Json::Array& items = (value.is_string() ? parsed : value).array(where);
    std::vector<ChatMessage> messages;
    messages.reserve(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
        const std::string what = where + "[" + std::to_string(i) + "]";
        ChatMessage message = is_as_read(items[i], config)
                                  ? ChatMessage::from_json(items[i], what)
                                  : ChatMessage::from_json(renamed(items[i], config, what), what);
        // OpenAI's way to say train: false.
        const auto weight = std::find_if(message.more.begin(), message.more.end(),
                                         [](const auto& one) { return one.first == "weight"; });
        if (weight != message.more.end()) {
            const double number = weight->second.number(what + ": weight");
            if (number != 0 && number != 1)
                throw Error(what + ": weight must be 0 or 1, not " + weight->second.dump());
            message.train = message.train && number == 1;
            message.more.erase(weight);
        }
        messages.push_back(std::move(message));
    }
    return messages;
}

}  // namespace garam
