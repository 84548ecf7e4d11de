// garam: fine-tunes and runs transformer models from the command line.
#include <csignal>
#include <string>
#include <vector>

#include "garam/app/bug_report.h"
#include "garam/app/command_line.h"

int main(int argc, char** argv) {
    garam::install_bug_report();
    std::signal(SIGPIPE, SIG_IGN);
    return garam::run_command_line(garam::all_commands(),
                                   std::vector<std::string>(argv + (argc > 0), argv + argc));
}
