// Chat templates of our own, for models whose files have none, and for those who want another one: the
// formats that are publicly documented under these names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace garam {

// Their generation blocks mark what the assistant says, its end included. Throws Error naming the known
// ones for any other name.
const std::string& builtin_chat_template(std::string_view name);
bool is_builtin_chat_template(std::string_view name);
// In alphabetical order.
std::vector<std::string> builtin_chat_templates();

}  // namespace garam
