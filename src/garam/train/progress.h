// The run as a person watches it. On a terminal: one line that is redrawn, fitted to the width,
// with messages above it. Elsewhere (a file, a CI log): plain lines, one per logged step,
// evaluation and message.
#pragma once

#include <cstdio>
#include <optional>
#include <string>

#include "garam/train/observer.h"

namespace garam {

// "05:07", "1:02:03", "2d 03:04:05"; "--:--" when negative, not finite or beyond a thousand days.
std::string format_duration(double seconds);

// What one line of the bar shows.
struct ProgressLine {
    std::int64_t step = 0;
    std::int64_t max_steps = 0;
    double elapsed = 0;
    std::optional<double> remaining;
    std::optional<StepReport> last;  // loss, learning rate, tokens per second
};

// " 42% [====>     ]  42/100  loss 1.234  lr 1.0e-04  812 tok/s  00:12<00:17", at most columns - 1
// characters (a full last column would wrap): the bar shrinks first, then parts are left out, the
// least telling one first.
std::string format_progress(const ProgressLine& line, int columns);

class ConsoleProgress : public TrainObserver {
  public:
    // To stderr; a bar when that is a terminal.
    ConsoleProgress();
    // To `out`, which must outlive this; a bar of `columns` when given, else plain lines.
    ConsoleProgress(std::FILE* out, std::optional<int> columns);
    ~ConsoleProgress() override;
    ConsoleProgress(const ConsoleProgress&) = delete;
    ConsoleProgress& operator=(const ConsoleProgress&) = delete;

    void on_reading(const ReadingState& state) override;
    void on_start(const StartReport& report) override;
    void on_progress(const ProgressReport& report) override;
    void on_step(const StepReport& report) override;
    void on_evaluation(const EvalReport& report) override;
    void on_checkpoint(const std::filesystem::path& path) override;
    void on_message(std::string_view text) override;
    void on_end(const EndReport& report) override;

  private:
    void print(const std::string& text);  // whole lines, above the bar
    void print_summary(const EndReport& report);
    void draw();
    void erase();
    int columns() const;
    std::optional<double> remaining(std::int64_t step, std::int64_t max_steps,
                                    double elapsed) const;

    std::FILE* out_;
    bool bar_;
    std::optional<int> fixed_columns_;
    std::int64_t first_step_ = 0;
    std::optional<ProgressLine> line_;
    double drawn_at_ = -1;
    double read_at_ = 0;  // seconds of reading when that was last told
    std::string read_source_;
    bool visible_ = false;
};

}  // namespace garam
