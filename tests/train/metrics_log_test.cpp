#include "garam/train/metrics_log.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <sstream>

#include "garam/core/error.h"
#include "garam/core/json.h"
#include "testing/temp_dir.h"

namespace garam {
namespace {

using testing::read_file;
using testing::TempDir;

StepReport step_at(std::int64_t step) {
    StepReport report;
    report.step = step;
    report.max_steps = 100;
    report.epoch = static_cast<double>(step) / 3.0;
    report.loss = 1.0 / static_cast<double>(step);
    report.grad_norm = 0.1 * static_cast<double>(step);
    report.learning_rate = 1e-4;
    report.num_target_tokens = 10 * step;
    report.tokens_per_second = 1234.5;
    report.peak_memory_bytes = std::int64_t{1} << 33;
    return report;
}

EvalReport eval_at(std::int64_t step) {
    EvalReport report;
    report.step = step;
    report.epoch = static_cast<double>(step) / 3.0;
    report.eval_loss = 2.0 / static_cast<double>(step);
    report.num_target_tokens = 55;
    report.seconds = 0.25;
    return report;
}

// Steps (first, last], logged each second one, evaluated each fourth.
void log_steps(MetricsLog& log, std::int64_t first, std::int64_t last) {
    for (std::int64_t step = first + 1; step <= last; ++step) {
        if (step % 2 == 0) log.on_step(step_at(step));
        if (step % 4 == 0) log.on_evaluation(eval_at(step));
    }
}

TEST(MetricsLog, OneObjectALineWithTransformersNames) {
    const TempDir dir;
    const auto path = dir / "metrics.jsonl";
    MetricsLog log(path, 0);
    log.on_step(step_at(10));
    log.on_evaluation(eval_at(10));
    // There as soon as it happened, not when the run ends.
    std::istringstream lines(read_file(path));
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    const Json step = Json::parse(line, "line 1");
    EXPECT_EQ(step.at("step").integer(), 10);
    EXPECT_EQ(step.at("epoch").number(), 10.0 / 3.0);
    EXPECT_EQ(step.at("loss").number(), 0.1);
    EXPECT_EQ(step.at("grad_norm").number(), 1.0);
    EXPECT_EQ(step.at("learning_rate").number(), 1e-4);
    EXPECT_EQ(step.at("num_target_tokens").integer(), 100);
    EXPECT_EQ(step.at("tokens_per_second").number(), 1234.5);
    EXPECT_EQ(step.at("peak_memory_bytes").integer(), std::int64_t{1} << 33);
    ASSERT_TRUE(std::getline(lines, line));
    const Json evaluation = Json::parse(line, "line 2");
    EXPECT_EQ(evaluation.at("step").integer(), 10);
    EXPECT_EQ(evaluation.at("eval_loss").number(), 0.2);
    EXPECT_EQ(evaluation.find("loss"), nullptr);
    EXPECT_FALSE(std::getline(lines, line));
}

TEST(MetricsLog, AResumedFileEqualsThatOfARunThatNeverStopped) {
    const TempDir dir;
    {
        MetricsLog whole(dir / "whole.jsonl", 0);
        log_steps(whole, 0, 12);
    }
    const std::string expected = read_file(dir / "whole.jsonl");
    // Killed after step 9 at any byte of the line that it was writing; the last checkpoint is step 4.
    {
        MetricsLog killed(dir / "killed.jsonl", 0);
        log_steps(killed, 0, 9);
    }
    const std::string before = read_file(dir / "killed.jsonl");
    const std::size_t last_line = before.rfind('\n', before.size() - 2) + 1;
    for (std::size_t cut = last_line; cut <= before.size(); ++cut) {
        const auto path = dir.write("resumed.jsonl", before.substr(0, cut));
        MetricsLog resumed(path, 4);
        log_steps(resumed, 4, 12);
        ASSERT_EQ(read_file(path), expected) << "cut at byte " << cut;
    }
}

TEST(MetricsLog, KeepsALastLineThatOnlyLacksItsEnd) {
    const TempDir dir;
    const auto path = dir.write("metrics.jsonl", "{\"step\": 2, \"loss\": 1.5}");
    MetricsLog log(path, 2);
    log.on_step(step_at(4));
    const std::string text = read_file(path);
    EXPECT_TRUE(text.starts_with("{\"step\": 2, \"loss\": 1.5}\n{"));
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

TEST(MetricsLog, DropsWhatIsNoEntry) {
    const TempDir dir;
    const auto path = dir.write("metrics.jsonl", std::string("{\"step\": 1}\n\n[1]\n{\"loss\": 2}\n"
                                                             "{\"step\": \"2\"}\n{\"step\": 2") +
                                                     std::string(5, '\0') + "\n{\"step\": 3}\n");
    MetricsLog log(path, 2);
    EXPECT_EQ(read_file(path), "{\"step\": 1}\n");
}

TEST(MetricsLog, ANewRunStartsAnew) {
    const TempDir dir;
    const auto path = dir.write("metrics.jsonl", "{\"step\": 0, \"loss\": 1.5}\n");
    MetricsLog log(path, 0);
    EXPECT_EQ(read_file(path), "");
}

TEST(MetricsLog, NonFiniteNumbersStayJson) {
    const TempDir dir;
    const auto path = dir / "metrics.jsonl";
    MetricsLog log(path, 0);
    StepReport report = step_at(1);
    report.loss = std::numeric_limits<double>::quiet_NaN();
    log.on_step(report);
    EXPECT_TRUE(Json::parse(read_file(path), "line").at("loss").is_null());
}

TEST(MetricsLog, ADiskThatRefusesIsAnErrorWithTheFilesName) {
    const TempDir dir;
    EXPECT_THROW(MetricsLog(dir / "no" / "such" / "folder" / "metrics.jsonl", 0), Error);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        ::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{600, 600};
        setrlimit(RLIMIT_FSIZE, &limit);
        try {
            MetricsLog log(dir / "metrics.jsonl", 0);
            log_steps(log, 0, 100);
        } catch (const Error& error) {
            const std::string message = error.what();
            const bool good = message.find("metrics.jsonl") != std::string::npos &&
                              message.find("File too large") != std::string::npos;
            _exit(good ? 0 : 2);
        }
        _exit(1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace garam
