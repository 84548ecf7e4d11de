#include "garam/app/command_line.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <new>
#include <system_error>

#include "garam/core/error.h"
#include "garam/io/interruptible_writing.h"

namespace garam {
namespace {

// A command of every kind of argument, whose run is given by the test.
class Probe : public Command {
  public:
    std::string name() const override { return "probe"; }
    std::string summary() const override { return "For tests"; }
    void declare(Arguments& arguments) override {
        arguments.positional("MODEL", model, "The model");
        arguments.option("--top-p", &top_p, "Nucleus",
                         Range{.low = 0, .high = 1, .low_open = true});
        arguments.option("--count", &count, "How many", at_least(1));
        arguments.option("--stop", &stop, "Ends the text");
        arguments.option("--json", &json, "As JSON");
        arguments.option("--seed", &seed, "Seed");
    }
    int run() override { return body(); }

    std::string model;
    double top_p = 1;
    std::int64_t count = 5;
    std::vector<std::string> stop;
    bool json = false;
    std::optional<std::int64_t> seed;
    std::function<int()> body = [] { return 0; };
};

struct Outcome {
    int status = 0;
    std::string err;
};

Outcome run(
    Probe*& probe, const std::vector<std::string>& arguments,
    const std::function<int()>& body = [] { return 0; }) {
    static std::vector<std::unique_ptr<Command>> commands;
    commands.clear();
    auto owned = std::make_unique<Probe>();
    probe = owned.get();
    probe->body = body;
    commands.push_back(std::move(owned));
    Outcome outcome;
    ::testing::internal::CaptureStderr();
    outcome.status = run_command_line(commands, arguments);
    outcome.err = ::testing::internal::GetCapturedStderr();
    return outcome;
}

TEST(CommandLineParsing, ReadsArgumentsOfEveryKind) {
    Probe* probe = nullptr;
    const Outcome outcome = run(probe, {"probe", "--top-p", "0.5", "m.gguf", "--stop", "a, b",
                                        "--json", "--stop=c", "--seed", "-3", "--count=7"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(probe->model, "m.gguf");
    EXPECT_EQ(probe->top_p, 0.5);
    EXPECT_EQ(probe->count, 7);
    EXPECT_EQ(probe->stop, (std::vector<std::string>{"a, b", "c"}));
    EXPECT_TRUE(probe->json);
    EXPECT_EQ(probe->seed, -3);
}

TEST(CommandLineParsing, KeepsDefaults) {
    Probe* probe = nullptr;
    EXPECT_EQ(run(probe, {"probe", "m"}).status, 0);
    EXPECT_EQ(probe->count, 5);
    EXPECT_FALSE(probe->json);
    EXPECT_FALSE(probe->seed.has_value());
}

TEST(CommandLineParsing, RefusesBadArguments) {
    Probe* probe = nullptr;
    const auto err = [&](const std::vector<std::string>& arguments) {
        const Outcome outcome = run(probe, arguments);
        EXPECT_EQ(outcome.status, 2);
        return outcome.err;
    };
    EXPECT_EQ(err({"probe", "m", "--top-p", "2"}),
              "garam: error: command line: --top-p: 2 is out of range, it must be in (0, 1]\n");
    EXPECT_EQ(err({"probe", "m", "--count", "x"}),
              "garam: error: command line: --count: 'x' is not a whole number\n");
    EXPECT_EQ(err({"probe", "m", "n"}),
              "garam: error: garam probe: 'n' is one argument too many\n");
    EXPECT_EQ(err({"probe", "m", "--cuont", "3"}),
              "garam: error: unknown option --cuont: did you mean --count?\n");
    EXPECT_NE(err({"probe"}).find("MODEL"), std::string::npos);
    EXPECT_NE(err({"probe", "m", "--count"}).find("--count"), std::string::npos);
}

TEST(CommandLineStatus, FollowsWhatWasThrown) {
    Probe* probe = nullptr;
    const Outcome user = run(probe, {"probe", "m"}, []() -> int { throw Error("a\nb\x1b[1m"); });
    EXPECT_EQ(user.status, 2);
    EXPECT_EQ(user.err, "garam: error: a b?[1m\n");
    const Outcome memory = run(probe, {"probe", "m"}, []() -> int { throw std::bad_alloc(); });
    EXPECT_EQ(memory.status, 2);
    EXPECT_EQ(memory.err.rfind("garam: error: out of memory", 0), 0u);
    const Outcome system = run(probe, {"probe", "m"}, []() -> int {
        throw std::filesystem::filesystem_error("cannot remove", "x",
                                                std::make_error_code(std::errc::permission_denied));
    });
    EXPECT_EQ(system.status, 2);
    EXPECT_EQ(run(probe, {"probe", "m"}, [] { return 7; }).status, 7);
}

// `garam quantize model out && garam chat out` must not go on after Ctrl-C.
TEST(CommandLine, AnInterruptedWriteIsToldByTheStatus) {
    Probe* probe = nullptr;
    const Outcome outcome =
        run(probe, {"probe", "model"}, []() -> int { throw WritingInterrupted{2}; });
    EXPECT_EQ(outcome.status, 130);
    EXPECT_EQ(outcome.err, "\ngaram: interrupted, nothing was written\n");
}

}  // namespace
}  // namespace garam
