// `garam chat` with input that is no terminal.
#include <gtest/gtest.h>

#include "app/run_garam.h"
#include "testing/temp_dir.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

using testing::run_shell;
using testing::RunResult;
using testing::TempDir;
using testing::TinyModel;
using testing::write_tiny_model;

// The first answers are kept on one line: a stop string takes the rest.
constexpr const char* kChat =
    " | \"$GARAM\" chat model --dtype f32 --max-new-tokens 8 --system S --stop '\n'";

TEST(ChatCommand, AnswersTurnsAndResets) {
    const TempDir dir;
    write_tiny_model(dir / "model");
    const RunResult result = run_shell(
        "printf 'hello\\nmore\\n/reset\\nhello\\n/quit\\nnever read\\n'" + std::string(kChat),
        dir.path().string());
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    std::vector<std::string> lines;
    for (std::size_t begin = 0; begin < result.out.size();) {
        const std::size_t end = result.out.find('\n', begin);
        lines.push_back(result.out.substr(begin, end - begin));
        begin = end + 1;
    }
    ASSERT_EQ(lines.size(), 3u) << result.out;
    EXPECT_EQ(lines[0], lines[2]);
}

TEST(ChatCommand, EndsWithItsInput) {
    const TempDir dir;
    write_tiny_model(dir / "model");
    const RunResult result = run_shell("printf 'hello'" + std::string(kChat), dir.path().string());
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_FALSE(result.out.empty());
    EXPECT_EQ(run_shell("printf ''" + std::string(kChat), dir.path().string()).out, "");
}

TEST(ChatCommand, AModelWithoutTemplateIsRefused) {
    const TempDir dir;
    TinyModel model;
    model.chat_template = false;
    write_tiny_model(dir / "model", model);
    const RunResult result = run_shell("echo hello" + std::string(kChat), dir.path().string());
    EXPECT_EQ(result.status, 2);
    EXPECT_NE(result.err.find("chat template"), std::string::npos) << result.err;
}

TEST(ChatCommand, ATurnBeyondTheContextIsAnError) {
    const TempDir dir;
    write_tiny_model(dir / "model");
    const RunResult result =
        run_shell("printf '%0600d\\n' 1" + std::string(kChat), dir.path().string());
    EXPECT_EQ(result.status, 2);
    EXPECT_NE(result.err.find("512"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace garam
