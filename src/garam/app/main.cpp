// garam: fine-tunes and runs transformer models from the command line.
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>

#include "garam/app/bug_report.h"
#include "garam/app/command_line.h"

namespace {

// The OpenMP runtime reads its environment before main(), and its idle threads spin by default:
// when another process wants a core, matrix products then become ten times slower. So the process
// starts once more with sleeping threads. A policy that the user set is kept; where restarting
// fails, the run goes on as it is.
void sleep_when_idle(char** argv) {
    if (std::getenv("OMP_WAIT_POLICY") != nullptr) return;
    if (setenv("OMP_WAIT_POLICY", "passive", 1) != 0) return;
    std::array<char, 4096> path{};
    const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
    if (length > 0) execv(path.data(), argv);
}

}  // namespace

int main(int argc, char** argv) {
    garam::install_bug_report();
    std::signal(SIGPIPE, SIG_IGN);
    garam::Invocation invocation;
    for (int i = 1; i < argc; ++i)
        invocation.arguments.emplace_back(argv[i]);
    invocation.before_computing = [argv] { sleep_when_idle(argv); };
    return garam::run_command_line(garam::all_commands(), invocation);
}
