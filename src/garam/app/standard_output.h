// Standard output that notices when nobody listens. main() ignores SIGPIPE, so that a closed pipe
// never ends a run half-way; whoever prints results stops by the exception.
#pragma once

#include <string_view>

namespace garam {

// The reader of standard output is gone. No Error: there is nothing to tell.
class OutputClosed {};

// Throws OutputClosed, or Error when the output cannot be written (a full disk).
void print(std::string_view text);
void flush_output();

}  // namespace garam
