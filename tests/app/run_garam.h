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

// A file of the reference data.
std::string path_of(const char* relative);
// What `garam generate` answers to a prompt by the most probable tokens; `model` are its first arguments.
std::string text_of(const std::vector<std::string>& model);

}  // namespace garam::testing
