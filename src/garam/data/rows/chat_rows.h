// The turns of a chat as they stand in a row.
#pragma once

#include <string>
#include <vector>

#include "garam/core/json.h"
#include "garam/data/data_config.h"
#include "garam/text/chat_template.h"

namespace garam {

// `value`: a list of {role, content, ...} or of ShareGPT's {from, value}, or such a list as JSON text.
// Roles are mapped by data.roles; human and gpt are user and assistant, a function_call becomes the
// assistant's tool_calls, an observation the tool's answer. A turn with train: false or weight: 0 is context
// only. Throws Error "<where>: ..." for what is none.
std::vector<ChatMessage> messages_of(const Json& value, const DataConfig& config,
                                     const std::string& where);

// A value that is JSON, or holds it as text ("[{...}]"). Throws Error naming `where`.
Json json_of(const Json& value, const std::string& where);

}  // namespace garam
