// JSON Lines: one object a line. Blank lines are passed over, and whatever LineReader leaves out.
#pragma once

#include <string>
#include <string_view>

#include "garam/core/json.h"

namespace garam {

// The object on a line. Throws Error "<where>: ..." when it is not one; `where` is "file:line".
Json parse_row(std::string_view line, const std::string& where);

}  // namespace garam
