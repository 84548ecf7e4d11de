// Lets a run end in good order when the user presses Ctrl-C or a scheduler sends SIGTERM.
#pragma once

namespace garam {

// While one lives, the first SIGINT or SIGTERM only sets a flag (and says so on stderr), which the
// trainer reads between steps; a second one ends the process at once, with status 128 + signal (130
// for SIGINT). The handlers that stood before come back when it is destroyed. At most one at a time
// in a process.
class InterruptGuard {
  public:
    InterruptGuard();
    ~InterruptGuard();
    InterruptGuard(const InterruptGuard&) = delete;
    InterruptGuard& operator=(const InterruptGuard&) = delete;

    bool requested() const { return signal() != 0; }
    // The signal that came, or 0.
    int signal() const;
};

}  // namespace garam
