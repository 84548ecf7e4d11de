// Chat templates for models whose files have none.
#pragma once

#include <string>
#include <string_view>

namespace garam {

// "chatml" (<|im_start|>role … <|im_end|>) or "llama3" (<|start_header_id|> … <|eot_id|>). Throws Error
// naming the known ones for any other name.
const std::string& builtin_chat_template(std::string_view name);

}  // namespace garam
