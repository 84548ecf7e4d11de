// Where the source of a chat template lies: in files of a model, in one that is named, or built in.
#pragma once

#include <filesystem>
#include <string>

#include "garam/core/json.h"

namespace garam {

struct ChatTemplateSource {
    std::string source;
    // Another one for conversations with tools, as some models have it; empty: the same.
    std::string tool_use;
};

// `name_or_path`: a built-in name (chatml, llama3, …), a file of Jinja, a JSON file that holds one under
// "chat_template" (tokenizer_config.json, chat_template.json), or a folder with such files. Throws Error
// naming the built-in ones when it is none of these.
ChatTemplateSource chat_template_source(const std::string& name_or_path);

// The value of "chat_template": Jinja, or a list or object of named ones, of which "default" and
// "tool_use" count. Throws Error naming `where` when there is no default.
ChatTemplateSource named_chat_templates(const Json& value, const std::string& where);

// As Transformers reads a model's folder: chat_template.jinja and additional_chat_templates/*.jinja before
// what `config` (tokenizer_config.json) says, and chat_template.json last. Empty when there is none.
ChatTemplateSource chat_template_of_folder(const std::filesystem::path& folder, const Json& config);

}  // namespace garam
