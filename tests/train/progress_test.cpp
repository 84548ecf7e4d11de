#include "garam/train/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

namespace garam {
namespace {

// A console that remembers what was written to it.
class Capture {
  public:
    Capture() : file_(open_memstream(&text_, &size_)) {}
    ~Capture() {
        std::fclose(file_);
        free(text_);
    }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    std::FILE* file() const { return file_; }
    std::string text() const {
        std::fflush(file_);
        return std::string(text_, size_);
    }
    // What a terminal shows after "\r" and "erase to the end of the line" have done their work.
    std::vector<std::string> screen() const {
        std::vector<std::string> lines{""};
        const std::string all = text();
        std::size_t column = 0;
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (all[i] == '\n') {
                lines.emplace_back();
                column = 0;
            } else if (all[i] == '\r') {
                column = 0;
            } else if (all.compare(i, 3, "\x1b[K") == 0) {
                lines.back().resize(column);
                i += 2;
            } else {
                lines.back().resize(std::max(lines.back().size(), column + 1), ' ');
                lines.back()[column++] = all[i];
            }
        }
        return lines;
    }

  private:
    char* text_ = nullptr;
    std::size_t size_ = 0;
    std::FILE* file_;
};

StepReport step_at(std::int64_t step) {
    StepReport report;
    report.step = step;
    report.max_steps = 100;
    report.epoch = 0.25;
    report.loss = 1.23456;
    report.grad_norm = 0.5;
    report.learning_rate = 1e-4;
    report.tokens_per_second = 812.4;
    report.seconds = 12;
    return report;
}

StartReport start_at(std::int64_t first_step) {
    StartReport report;
    report.model = "m";
    report.first_step = first_step;
    report.max_steps = 100;
    return report;
}

TEST(Progress, Durations) {
    EXPECT_EQ(format_duration(0), "00:00");
    EXPECT_EQ(format_duration(307.4), "05:07");
    EXPECT_EQ(format_duration(3599.6), "1:00:00");
    EXPECT_EQ(format_duration(3723), "1:02:03");
    EXPECT_EQ(format_duration(2 * 86400 + 3 * 3600 + 245), "2d 03:04:05");
    EXPECT_EQ(format_duration(-1), "--:--");
    EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "--:--");
    EXPECT_EQ(format_duration(std::numeric_limits<double>::quiet_NaN()), "--:--");
}

TEST(Progress, TheLineFitsAnyWidthAndKeepsTheTellingParts) {
    const ProgressLine line{42, 100, 12, 17.0, step_at(40)};
    EXPECT_EQ(format_progress(line, 200),
              " 42% [==========>                 ]  42/100  loss 1.235  lr 1.0e-04  812 tok/s  "
              "00:12<00:17");
    std::size_t last_size = 0;
    for (int columns = 1; columns <= 200; ++columns) {
        const std::string text = format_progress(line, columns);
        EXPECT_LE(static_cast<int>(text.size()), std::max(columns - 1, 1)) << columns;
        EXPECT_TRUE(columns <= 4 || text.starts_with(" 42%")) << columns;
        EXPECT_TRUE(columns <= 12 || text.find("42/100") != std::string::npos) << columns;
        last_size = std::max(last_size, text.size());
    }
    EXPECT_EQ(last_size, format_progress(line, 200).size());
    EXPECT_NE(format_progress(line, 40).find("loss"), std::string::npos);
    EXPECT_EQ(format_progress({100, 100, 5, 0.0, std::nullopt}, 60),
              "100% [============================]  100/100  00:05<00:00");
    // Before the first step nothing is known, and nothing divides by zero.
    EXPECT_EQ(format_progress({0, 0, 0, std::nullopt, std::nullopt}, 30).substr(0, 4), "  0%");
}

TEST(Progress, ATerminalShowsOneLineWithMessagesAboveIt) {
    Capture capture;
    {
        ConsoleProgress console(capture.file(), 60);
        console.on_start(start_at(0));
        for (std::int64_t step = 1; step <= 50; ++step) {
            console.on_progress({step, 100, static_cast<double>(step)});
            if (step == 10) console.on_step(step_at(10));
            if (step == 20) console.on_message("a message");
        }
    }
    const auto screen = capture.screen();
    ASSERT_EQ(screen.size(), 4u);
    EXPECT_EQ(screen[0].rfind("training m: ", 0), 0u);
    EXPECT_EQ(screen[1], "a message");
    EXPECT_EQ(screen[2].rfind(" 50% [", 0), 0u) << screen[2];
    EXPECT_NE(screen[2].find("00:50<00:50"), std::string::npos) << screen[2];
    EXPECT_EQ(screen[3], "");  // an error's message would begin on a fresh line
}

TEST(Progress, TheBarIsNotRedrawnForEveryQuickStep) {
    Capture capture;
    ConsoleProgress console(capture.file(), 60);
    for (std::int64_t step = 1; step <= 1000; ++step)
        console.on_progress({step, 1000, 0.001 * static_cast<double>(step)});
    const std::string text = capture.text();
    EXPECT_LT(std::count(text.begin(), text.end(), '\r'), 20);
    EXPECT_EQ(capture.screen().back().rfind("100%", 0), 0u);  // the last one is
}

TEST(Progress, TimeLeftCountsOnlyStepsOfThisProcess) {
    Capture capture;
    ConsoleProgress console(capture.file(), 70);
    console.on_start(start_at(90));
    console.on_progress({95, 100, 50});
    EXPECT_NE(capture.screen()[0].find("going on after step 90"), std::string::npos);
    EXPECT_NE(capture.screen().back().find("00:50<00:50"), std::string::npos);
}

TEST(Progress, AFileGetsPlainLines) {
    Capture capture;
    {
        ConsoleProgress console(capture.file(), std::nullopt);
        console.on_start(start_at(0));
        for (std::int64_t step = 1; step <= 10; ++step)
            console.on_progress({step, 100, static_cast<double>(step)});
        console.on_step(step_at(10));
        console.on_evaluation({.step = 10, .eval_loss = 2.5, .is_best = true});
        console.on_checkpoint("out/checkpoint-10");
        EndReport end;
        end.reason = "interrupted";
        end.step = 10;
        end.max_steps = 100;
        end.num_tokens = 640;
        end.seconds = 20;
        end.peak_memory_bytes = 3 << 20;
        end.seconds_by_phase = {{"forward", 5.0}, {"backward", 10.0}};
        end.peak_by_purpose = {{"weights", 2 << 20}, {"logits", 0}};
        end.outputs = {{"adapter", "out"}};
        console.on_end(end);
    }
    const std::string text = capture.text();
    EXPECT_EQ(text.find('\r'), std::string::npos);
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    const auto lines = capture.screen();
    ASSERT_EQ(lines.size(), 10u) << text;
    EXPECT_EQ(lines[1],
              "step 10/100  epoch 0.25  loss 1.235  grad_norm 0.5  lr 1.00e-04  812 tok/s  "
              "00:12<01:48");
    EXPECT_EQ(lines[2], "step 10  eval_loss 2.5 over 0 target tokens, 0.0 s  (best so far)");
    EXPECT_EQ(lines[3], "saved out/checkpoint-10");
    EXPECT_EQ(lines[4].rfind("interrupted after step 10/100", 0), 0u);
    EXPECT_NE(lines[4].find("peak memory 3.0 MiB"), std::string::npos);
    EXPECT_EQ(lines[5], "  time:   forward 5.0 s (25%) backward 10.0 s (50%)");
    EXPECT_EQ(lines[6], "  memory: weights 2.0 MiB");
    EXPECT_EQ(lines[7], "  adapter: out");
    EXPECT_NE(lines[8].find("train.resume_from_checkpoint=true"), std::string::npos);
}

TEST(ConsoleProgress, ARunWithoutAStepLeftClaimsNoLoss) {
    Capture capture;
    {
        ConsoleProgress console(capture.file(), std::nullopt);
        EndReport end;
        end.reason = "finished";
        end.step = 2;
        end.max_steps = 2;
        console.on_end(end);
    }
    EXPECT_EQ(capture.text(), "finished: no step was left after step 2/2 (epoch 0.00)\n");
}

}  // namespace
}  // namespace garam
