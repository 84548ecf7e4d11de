// From argv to a subcommand that ran, and from what it threw to an exit status.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "garam/app/command.h"

namespace garam {

// Reads the arguments (without the program's name), runs the command, returns the exit status:
//   0    done
//   2    Error, bad arguments, out of memory, a failure of the system: one line on stderr
//   130  a run that SIGINT ended in good order (its state is saved), or a command that writes a model (what it
//        began is removed); 143 by SIGTERM, 129 by SIGHUP
//   141  standard output was closed by its reader (`garam config | head`): nothing is said
// Bugs are not caught: they end in the handler of bug_report.h with their own stack.
int run_command_line(const std::vector<std::unique_ptr<Command>>& commands,
                     const std::vector<std::string>& arguments);

// "garam: warning: …" on stderr, as one line.
void warn(const std::string& sentence);

// A message as one line without control characters: parts of it come from files.
std::string one_line(const std::string& message);

// The begin of a long text of a file, up to the end of a character, with "…": what a message shows of it.
std::string begin_of(std::string_view text);

}  // namespace garam
