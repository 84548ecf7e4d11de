#include "garam/text/chat_template_source.h"

#include <fstream>
#include <iterator>

#include "garam/core/error.h"
#include "garam/text/builtin_templates.h"

namespace garam {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
    constexpr std::uintmax_t kMaxSize = std::uintmax_t{64} << 20;
    std::error_code failed;
    const std::uintmax_t size = fs::file_size(path, failed);
    if (!failed && size > kMaxSize) throw Error(path.string() + ": too large for a chat template");
    std::ifstream file(path, std::ios::binary);
    if (!file) throw Error(path.string() + ": cannot be read");
    return {std::istreambuf_iterator<char>(file), {}};
}

ChatTemplateSource from_json(const fs::path& path) {
    const Json json = Json::parse_file(path);
    const Json* value = json.find("chat_template");
    if (value == nullptr || value->is_null())
        throw Error(path.string() + ": has no \"chat_template\"");
    return named_chat_templates(*value, path.string());
}

}  // namespace

ChatTemplateSource named_chat_templates(const Json& value, const std::string& where) {
    if (value.is_string()) return {value.string(), {}};
    ChatTemplateSource found;
    bool has_default = false;
    const auto take = [&](const std::string& name, const std::string& source) {
        if (name == "default") {
            found.source = source;
            has_default = true;
        } else if (name == "tool_use") {
            found.tool_use = source;
        }
    };
    if (value.is_object()) {
        for (const auto& [name, source] : value.object())
            take(name, source.string(where + ": chat_template." + name));
    } else {
        for (const Json& entry : value.array(where + ": chat_template"))
            take(entry.at("name", where + ": chat_template").string(where + ": name"),
                 entry.at("template", where + ": chat_template").string(where + ": template"));
    }
    if (!has_default) throw Error(where + ": chat_template lists no template named \"default\"");
    return found;
}

ChatTemplateSource chat_template_of_folder(const fs::path& folder, const Json& config) {
    ChatTemplateSource found;
    const Json* value = config.find("chat_template");
    if (const fs::path file = folder / "chat_template.jinja"; fs::exists(file)) {
        found.source = read_text(file);
    } else if (value != nullptr && !value->is_null()) {
        found = named_chat_templates(*value, (folder / "tokenizer_config.json").string());
    } else if (const fs::path json = folder / "chat_template.json"; fs::exists(json)) {
        found = from_json(json);
    }
    if (const fs::path file = folder / "additional_chat_templates" / "tool_use.jinja";
        fs::exists(file))
        found.tool_use = read_text(file);
    return found;
}

ChatTemplateSource chat_template_source(const std::string& name_or_path) {
    if (is_builtin_chat_template(name_or_path)) return {builtin_chat_template(name_or_path), {}};
    const fs::path path = name_or_path;
    std::error_code failed;
    if (fs::is_directory(path, failed)) {
        const fs::path config = path / "tokenizer_config.json";
        ChatTemplateSource found = chat_template_of_folder(
            path, fs::exists(config) ? Json::parse_file(config) : Json(Json::Object{}));
        if (found.source.empty()) throw Error(path.string() + ": has no chat template");
        return found;
    }
    if (fs::exists(path, failed)) {
        if (path.extension() == ".json") return from_json(path);
        ChatTemplateSource found{read_text(path), {}};
        if (found.source.find_first_not_of(" \t\r\n") == std::string::npos)
            throw Error(path.string() + ": the chat template is empty");
        return found;
    }
    try {
        return {builtin_chat_template(name_or_path), {}};
    } catch (const Error& error) {
        throw Error(std::string(error.what()) + "; and there is no such file");
    }
}

}  // namespace garam
