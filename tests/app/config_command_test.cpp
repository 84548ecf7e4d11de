// `garam config` and what all commands share: help, version, errors and exit statuses.
#include <gtest/gtest.h>

#include "app/run_garam.h"
#include "garam/train/job_config.h"
#include "testing/temp_dir.h"

namespace garam {
namespace {

using testing::run_garam;
using testing::run_shell;
using testing::RunResult;
using testing::TempDir;

void expect_error(const RunResult& result, const std::string& message) {
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err, "garam: error: " + message + "\n");
}

TEST(CommandLine, HelpShowsCommandsAndExamples) {
    const RunResult result = run_garam({"--help"});
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.err, "");
    EXPECT_NE(result.out.find("config"), std::string::npos);
    EXPECT_NE(result.out.find("Examples:"), std::string::npos);
    const RunResult of_command = run_garam({"config", "--help"});
    EXPECT_EQ(of_command.status, 0);
    EXPECT_NE(of_command.out.find("garam config"), std::string::npos);
    EXPECT_NE(of_command.out.find("Examples:"), std::string::npos);
}

TEST(CommandLine, VersionIsOneLine) {
    const RunResult result = run_garam({"--version"});
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.out.rfind("garam ", 0), 0u);
    EXPECT_EQ(result.out.find('\n'), result.out.size() - 1);
}

TEST(CommandLine, NoCommandShowsHelpAndFails) {
    const RunResult result = run_garam({});
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find("Usage: garam"), std::string::npos);
}

TEST(CommandLine, UnknownCommandsAndOptionsNameTheNearest) {
    expect_error(run_garam({"confg"}), "unknown command confg: did you mean config?");
    expect_error(run_garam({"bananas"}),
                 "unknown command bananas: garam --help lists the commands");
    expect_error(run_garam({"config", "--yml"}), "unknown option --yml: did you mean --yaml?");
    expect_error(run_garam({"config", "--lora.r=8"}),
                 "unknown option --lora.r=8: settings are written without dashes, lora.r=8");
}

TEST(CommandLine, AClosedPipeIsNoError) {
    const RunResult result = run_shell("{ \"$GARAM\" config; echo $? >&2; } | true");
    // The reader may be gone before or after the text fits into the pipe.
    EXPECT_TRUE(result.err == "141\n" || result.err == "0\n") << result.err;
    const RunResult certain = run_shell("{ sleep 0.2; \"$GARAM\" config; echo $? >&2; } | true");
    EXPECT_EQ(certain.err, "141\n");
}

TEST(CommandLine, AFullDiskIsAnError) {
    const RunResult result = run_shell("\"$GARAM\" config >/dev/full");
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.err,
              "garam: error: cannot write to standard output: No space left on device\n");
}

TEST(ConfigCommand, ListsEveryKeyWithTypeDefaultAndMeaning) {
    const RunResult result = run_garam({"config"});
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.err, "");
    JobConfig job;
    const ConfigTable table = describe(job);
    for (const auto& entry : table.entries()) {
        const std::string heading = "\n" + entry.key + " = " + entry.default_text + "\n    (";
        EXPECT_NE(("\n" + result.out).find(heading), std::string::npos) << entry.key;
    }
    EXPECT_NE(result.out.find("(one of: lora, full)"), std::string::npos);
}

TEST(ConfigCommand, ShowsWhereAValueWasSet) {
    const TempDir folder;
    folder.write("spam.yaml",
                 "model: base\ndata: {train: a.jsonl}\ntrain:\n  # fast\n  learning_rate: 1e-4\n");
    const RunResult result =
        run_garam({"config", "lora.r=16", "spam.yaml"}, folder.path().string());
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("train.learning_rate = 1.0e-04\n    (float in [0, 1000]; default "
                              "2.0e-05; set by spam.yaml:5)"),
              std::string::npos)
        << result.out;
    EXPECT_NE(
        result.out.find("lora.r = 16\n    (int in [1, 65536]; default 8; set by command line)"),
        std::string::npos);
}

TEST(ConfigCommand, OverridesWinOverFilesAndLaterFilesOverEarlier) {
    const TempDir folder;
    folder.write("a.yaml", "model: m\ndata.train: t\nlora: {r: 1, lora_alpha: 1}\n");
    folder.write("b.yaml", "lora:\n  r: 2\n  lora_alpha: 2\n");
    const RunResult result =
        run_garam({"config", "--yaml", "lora.r=3", "a.yaml", "b.yaml"}, folder.path().string());
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("  r: 3\n  lora_alpha: 2.0\n"), std::string::npos) << result.out;
}

TEST(ConfigCommand, YamlOutputIsAConfigWithTheSameOutput) {
    const TempDir folder;
    const RunResult first =
        run_garam({"config", "--yaml", "model=my model", "data.train=~a: b",
                   "data.instruction=Spam?\n{text} \"'\\ #x", "train.bf16=false",
                   "lora.target_modules=[a, b.c]", "train.adam_epsilon=1e-7"});
    ASSERT_EQ(first.status, 0) << first.err;
    folder.write("again.yaml", first.out);
    const RunResult second = run_garam({"config", "--yaml", "again.yaml"}, folder.path().string());
    EXPECT_EQ(second.status, 0) << second.err;
    EXPECT_EQ(second.out, first.out);
    EXPECT_NE(first.out.find("adam_epsilon: 1.0e-07\n"), std::string::npos);
}

TEST(ConfigCommand, RefusesUnknownAndForeignKeysByName) {
    const TempDir folder;
    folder.write("bad.yaml", "model: m\ntrain:\n  seed: 1\n  learning_rte: 1e-4\n");
    expect_error(run_garam({"config", "bad.yaml"}, folder.path().string()),
                 "bad.yaml:4: unknown key train.learning_rte: did you mean train.learning_rate?");
    expect_error(run_garam({"config", "train.fp16=true"}),
                 "command line: train.fp16 is not supported: use train.bf16 (auto, true or false)");
    expect_error(run_garam({"config", "lora.lora_dropout=1.5"}),
                 "command line: lora.lora_dropout: 1.5 is out of range, it must be in [0, 1)");
    expect_error(run_garam({"config", "+lora.r=4"}),
                 "command line: +lora.r=4: keys cannot be added or removed, write lora.r=4");
}

TEST(ConfigCommand, ChecksThatAFilesKeysGoTogether) {
    const TempDir folder;
    folder.write("c.yaml", "model: m\ndata: {train: t}\ntrain: {eval_steps: 5}\n");
    const RunResult result = run_garam({"config", "c.yaml"}, folder.path().string());
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.err,
              "garam: error: train.eval_steps needs data.validation: name a file (or set "
              "data.validation_split or data.validation_fraction), or set it to null\n");
}

TEST(ConfigCommand, RefusesWhatIsNoConfigFile) {
    const TempDir folder;
    expect_error(run_garam({"config", "none.yaml"}, folder.path().string()),
                 "none.yaml: cannot read the config: No such file or directory");
    expect_error(run_garam({"config", "."}, folder.path().string()),
                 ".: is a folder, a config is a YAML file");
}

}  // namespace
}  // namespace garam
