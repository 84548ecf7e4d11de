// Runs the built program as a user does.
#pragma once

#include <string>
#include <vector>

namespace garam::testing {

struct RunResult {
    int status = 0;  // exit status; 128 + signal when a signal ended it
    std::string out;
    std::string err;
};

// `garam arguments…` in `folder` (empty: the current one).
RunResult run_garam(const std::vector<std::string>& arguments, const std::string& folder = "");
// A command line for the shell, in which $GARAM is the program.
RunResult run_shell(const std::string& command, const std::string& folder = "");

}  // namespace garam::testing
