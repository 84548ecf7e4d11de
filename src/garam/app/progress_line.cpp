#include "garam/app/progress_line.h"

#include <unistd.h>

#include <cstdio>

namespace garam {

ProgressLine::ProgressLine()
    : on_terminal_(isatty(STDERR_FILENO) == 1), next_(Clock::now() + std::chrono::seconds(2)) {}

ProgressLine::~ProgressLine() {
    if (shown_ && on_terminal_) std::fputs("\r\033[K", stderr);
}

void ProgressLine::show(const std::string& text) {
    const Clock::time_point now = Clock::now();
    if (now < next_) return;
    next_ = now + (on_terminal_ ? std::chrono::milliseconds(300) : std::chrono::seconds(10));
    shown_ = true;
    std::fputs((on_terminal_ ? "\r\033[K" + text : text + "\n").c_str(), stderr);
}

}  // namespace garam
