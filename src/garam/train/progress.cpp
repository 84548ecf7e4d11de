#include "garam/train/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "garam/data/samples/read_samples.h"

namespace garam {
namespace {

constexpr double kSecondsBetweenDraws = 0.1;
constexpr int kWidestBar = 30;
constexpr int kNarrowestBar = 6;
constexpr int kDefaultColumns = 80;

std::string format_loss(double loss) {
    return fmt::format("{:.4g}", loss);
}

// 812, 12.3k, 1.20M.
std::string format_count(double count) {
    if (!(std::abs(count) >= 10000)) return fmt::format("{:.0f}", count);
    if (std::abs(count) < 1e6) return fmt::format("{:.1f}k", count / 1e3);
    if (std::abs(count) < 1e9) return fmt::format("{:.2f}M", count / 1e6);
    return fmt::format("{:.2f}G", count / 1e9);
}

std::string format_bytes(std::int64_t bytes) {
    const double mib = static_cast<double>(bytes) / (1 << 20);
    return mib < 1024 ? fmt::format("{:.1f} MiB", mib) : fmt::format("{:.2f} GiB", mib / 1024);
}

double share(const ProgressLine& line) {
    if (line.max_steps <= 0) return 0;
    return std::clamp(static_cast<double>(line.step) / static_cast<double>(line.max_steps), 0.0,
                      1.0);
}

std::string format_bar(double share_done, int width) {
    const int inner = width - 2;
    const int filled = static_cast<int>(share_done * inner);
    std::string bar(static_cast<std::size_t>(inner), ' ');
    std::fill_n(bar.begin(), filled, '=');
    if (filled < inner && filled > 0) bar[static_cast<std::size_t>(filled) - 1] = '>';
    return "[" + bar + "]";
}

// A part of the line and how soon it is left out when space is short (0 last).
struct Part {
    int priority;
    std::string text;
};

std::string joined(const std::vector<Part>& parts, int least_priority) {
    std::string line;
    for (const Part& part : parts) {
        if (part.priority > least_priority) continue;
        line += (line.empty() ? "" : "  ") + part.text;
    }
    return line;
}

}  // namespace

std::string format_duration(double seconds) {
    if (!(seconds >= 0 && seconds < 1000 * 86400.0)) return "--:--";
    const auto total = static_cast<std::int64_t>(std::llround(seconds));
    const std::int64_t days = total / 86400;
    const std::int64_t hours = total / 3600 % 24;
    const std::int64_t minutes = total / 60 % 60;
    if (days > 0) return fmt::format("{}d {:02}:{:02}:{:02}", days, hours, minutes, total % 60);
    if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60);
    return fmt::format("{:02}:{:02}", minutes, total % 60);
}

std::string format_progress(const ProgressLine& line, int columns) {
    const auto room = static_cast<std::size_t>(std::max(columns - 1, 1));
    const double done = share(line);
    std::vector<Part> parts;
    parts.push_back({0, fmt::format("{:3.0f}%", std::floor(done * 100))});
    parts.push_back({1, fmt::format("{}/{}", line.step, line.max_steps)});
    if (line.last) {
        parts.push_back({2, "loss " + format_loss(line.last->loss)});
        parts.push_back({5, fmt::format("lr {:.1e}", line.last->learning_rate)});
        parts.push_back({4, format_count(line.last->tokens_per_second) + " tok/s"});
    }
    parts.push_back({3, format_duration(line.elapsed) + "<" +
                            (line.remaining ? format_duration(*line.remaining) : "--:--")});
    for (int least = 5; least >= 0; --least) {
        std::string text = joined(parts, least);
        if (text.size() > room) continue;
        const int left = static_cast<int>(room - text.size()) - 1;
        if (left < kNarrowestBar) return text;
        return text.substr(0, 4) + " " + format_bar(done, std::min(left, kWidestBar)) +
               text.substr(4);
    }
    return joined(parts, 0).substr(0, room);
}

ConsoleProgress::ConsoleProgress() : out_(stderr), bar_(isatty(STDERR_FILENO) == 1) {}

ConsoleProgress::ConsoleProgress(std::FILE* out, std::optional<int> columns)
    : out_(out), bar_(columns.has_value()), fixed_columns_(columns) {}

ConsoleProgress::~ConsoleProgress() {
    // An error's message starts on a line of its own; the last state of the bar stays readable.
    if (visible_) std::fputc('\n', out_);
    std::fflush(out_);
}

int ConsoleProgress::columns() const {
    if (fixed_columns_) return *fixed_columns_;
    winsize size{};
    if (ioctl(fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return kDefaultColumns;
}

std::optional<double> ConsoleProgress::remaining(std::int64_t step, std::int64_t max_steps,
                                                 double elapsed) const {
    if (step <= first_step_) return std::nullopt;
    return elapsed / static_cast<double>(step - first_step_) *
           static_cast<double>(std::max<std::int64_t>(max_steps - step, 0));
}

void ConsoleProgress::erase() {
    if (!visible_) return;
    std::fputs("\r\x1b[K", out_);
    visible_ = false;
}

void ConsoleProgress::draw() {
    if (!bar_ || !line_) return;
    std::fputs(("\r\x1b[K" + format_progress(*line_, columns())).c_str(), out_);
    std::fflush(out_);
    visible_ = true;
    drawn_at_ = line_->elapsed;
}

void ConsoleProgress::print(const std::string& text) {
    erase();
    std::fputs((text + "\n").c_str(), out_);
    std::fflush(out_);
    draw();
}

// Nothing of what is read at once.
void ConsoleProgress::on_reading(const ReadingState& state) {
    constexpr double kFirst = 2;
    constexpr double kSecondsBetweenLines = 10;
    if (state.source != read_source_) read_at_ = 0;
    read_source_ = state.source;
    const double wait = read_at_ == 0 ? kFirst : bar_ ? kSecondsBetweenDraws : kSecondsBetweenLines;
    if (state.seconds - read_at_ < wait) return;
    read_at_ = state.seconds;
    if (!bar_) return print(state.to_string());
    std::string text = state.to_string();
    std::size_t room = static_cast<std::size_t>(std::max(columns() - 1, 1));
    while (room < text.size() && room > 0 &&
           (static_cast<unsigned char>(text[room]) & 0xC0u) == 0x80u)
        --room;
    text.resize(std::min(text.size(), room));
    std::fputs(("\r\x1b[K" + text).c_str(), out_);
    std::fflush(out_);
    visible_ = true;
}

void ConsoleProgress::on_start(const StartReport& report) {
    first_step_ = report.first_step;
    std::string text = fmt::format(
        "training {}: {} of {} parameters, {} samples, {} steps of {} samples ({:.3g} epochs)",
        report.model, format_count(static_cast<double>(report.trained_parameters)),
        format_count(static_cast<double>(report.total_parameters)), report.num_samples,
        report.max_steps, report.samples_per_step, report.num_epochs);
    if (report.first_step > 0) text += fmt::format(", going on after step {}", report.first_step);
    print(text);
    // Its lines; the last one ends without a newline.
    if (!report.memory.empty()) print(report.memory.substr(0, report.memory.size() - 1));
    line_ = ProgressLine{report.first_step, report.max_steps, 0, std::nullopt, std::nullopt};
    draw();
}

void ConsoleProgress::on_progress(const ProgressReport& report) {
    if (!bar_) return;
    if (!line_) line_.emplace();
    line_->step = report.step;
    line_->max_steps = report.max_steps;
    line_->elapsed = report.seconds;
    line_->remaining = remaining(report.step, report.max_steps, report.seconds);
    const bool due = drawn_at_ < 0 || report.seconds - drawn_at_ >= kSecondsBetweenDraws;
    if (due || report.step == report.max_steps) draw();
}

void ConsoleProgress::on_step(const StepReport& report) {
    if (bar_) {
        if (!line_) line_.emplace();
        line_->last = report;
        draw();
        return;
    }
    const auto left = remaining(report.step, report.max_steps, report.seconds);
    print(fmt::format(
        "step {}/{}  epoch {:.2f}  loss {}  grad_norm {:.3g}  lr {:.2e}  {} tok/s  {}<{}",
        report.step, report.max_steps, report.epoch, format_loss(report.loss), report.grad_norm,
        report.learning_rate, format_count(report.tokens_per_second),
        format_duration(report.seconds), left ? format_duration(*left) : "--:--"));
}

void ConsoleProgress::on_evaluation(const EvalReport& report) {
    std::string metrics;
    for (const auto& [name, value] : report.metrics)
        if (name.find('_') == name.rfind('_'))  // not those of single labels
            metrics += fmt::format("  {} {:.6g}", name, value);
    print(fmt::format("step {}  eval_loss {} over {} target tokens{}, {:.1f} s{}", report.step,
                      format_loss(report.eval_loss), report.num_target_tokens, metrics,
                      report.seconds, report.is_best ? "  (best so far)" : ""));
}

void ConsoleProgress::on_checkpoint(const std::filesystem::path& path) {
    print("saved " + path.string());
}

void ConsoleProgress::on_message(std::string_view text) {
    print(std::string(text));
}

void ConsoleProgress::on_end(const EndReport& report) {
    draw();
    if (visible_) std::fputc('\n', out_);
    visible_ = false;
    line_.reset();
    if (report.num_tokens == 0) {
        print(fmt::format("{}: no step was left after step {}/{} (epoch {:.2f})", report.reason,
                          report.step, report.max_steps, report.epoch));
    } else {
        print_summary(report);
    }
    for (const auto& [what, where] : report.outputs)
        print(fmt::format("  {}: {}", what, where));
    if (report.reason == "interrupted")
        print("to go on: the same command with train.resume_from_checkpoint=true");
}

void ConsoleProgress::print_summary(const EndReport& report) {
    print(fmt::format("{} after step {}/{} (epoch {:.2f}): loss {}, {} tok/s, {}, peak memory {}",
                      report.reason, report.step, report.max_steps, report.epoch,
                      format_loss(report.train_loss), format_count(report.tokens_per_second),
                      format_duration(report.seconds), format_bytes(report.peak_memory_bytes)));
    if (!report.seconds_by_phase.empty()) {
        std::string text = "  time:  ";
        for (const auto& [phase, seconds] : report.seconds_by_phase)
            text += fmt::format(" {} {:.1f} s", phase, seconds) +
                    (report.seconds > 0 ? fmt::format(" ({:.0f}%)", 100 * seconds / report.seconds)
                                        : std::string());
        print(text);
    }
    if (!report.peak_by_purpose.empty()) {
        std::string text = "  memory:";
        for (const auto& [purpose, bytes] : report.peak_by_purpose)
            if (bytes > 0) text += fmt::format(" {} {}", purpose, format_bytes(bytes));
        print(text);
    }
}

}  // namespace garam
