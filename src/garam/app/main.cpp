// garam: fine-tunes and runs transformer models from the command line.
#include <fcntl.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <vector>

#include "garam/app/bug_report.h"
#include "garam/app/command_line.h"

namespace {

// Where standard input or an output is closed, the next file opened would get its number, and messages
// would be written into that file. What stands there instead can be neither read from nor written to.
void keep_standard_descriptors_taken() {
    for (int fd = 0; fd <= 2; ++fd) {
        if (fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
        // The lowest free number, which is this one.
        [[maybe_unused]] const int taken = open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
    }
}

}  // namespace

int main(int argc, char** argv) {
    garam::install_bug_report();
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);  // a write beyond `ulimit -f` fails, and says so
    keep_standard_descriptors_taken();
    return garam::run_command_line(garam::all_commands(),
                                   std::vector<std::string>(argv + (argc > 0), argv + argc));
}
