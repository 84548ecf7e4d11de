// How far a command has come, on stderr: a line that overwrites itself on a terminal and is gone at the end;
// elsewhere a line now and then. Nothing in the first two seconds.
#pragma once

#include <chrono>
#include <string>

namespace garam {

class ProgressLine {
  public:
    ProgressLine();
    ~ProgressLine();
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    // "12 of 80 rows", if it is time for it.
    void show(const std::string& text);

  private:
    using Clock = std::chrono::steady_clock;
    bool on_terminal_;
    bool shown_ = false;
    Clock::time_point next_;
};

}  // namespace garam
