// `garam merge` as a user runs it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "app/run_garam.h"
#include "garam/core/json.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam {
namespace {

using testing::path_of;
using testing::run_garam;
using testing::RunResult;
using testing::TempDir;
using testing::text_of;

constexpr const char* kBase = "golden/stories260K-hf";
constexpr const char* kAdapter = "golden/peft/case3_rslora_r8_all";

TEST(MergeCommand, TheFolderSpeaksAsBaseAndAdapterDo) {
    GARAM_REQUIRE_DATA(kAdapter);
    const TempDir dir;
    const std::string out = (dir / "merged").string();
    const RunResult result = run_garam({"merge", path_of(kBase), path_of(kAdapter), out});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("35 of 47 tensors merged, f32"), std::string::npos) << result.out;
    for (const char* file : {"config.json", "model.safetensors", "tokenizer.json",
                             "tokenizer_config.json", "generation_config.json"})
        EXPECT_TRUE(std::filesystem::exists(dir / "merged" / file)) << file;
    // Merging moves logits by 3e-5; the text parts only where two tokens are nearer than that.
    const std::string text = text_of({out});
    EXPECT_EQ(text, text_of({path_of(kBase), "--adapter", path_of(kAdapter)}));
    EXPECT_NE(text, text_of({path_of(kBase)}));
    // Read-only bits or modes of a temporary folder do not remain.
    EXPECT_NE(std::filesystem::status(out).permissions() & std::filesystem::perms::group_read,
              std::filesystem::perms::none);
}

TEST(MergeCommand, SeveralAdaptersByWeight) {
    GARAM_REQUIRE_DATA(kAdapter);
    const TempDir dir;
    const std::string out = (dir / "merged").string();
    const std::string adapter = path_of(kAdapter);
    const auto merge = [&](const char* weights) {
        return run_garam({"merge", path_of(kBase), adapter, adapter, out, "--weights", weights});
    };
    EXPECT_NE(merge("0.5").err.find("1 numbers for 2 adapters"), std::string::npos);
    EXPECT_NE(merge("0.5,x").err.find("give numbers with commas"), std::string::npos);
    EXPECT_EQ(merge("0.25,0.75").status, 0);
    EXPECT_EQ(text_of({out}), text_of({path_of(kBase), "--adapter", adapter}));
    const RunResult missing = run_garam({"merge", path_of(kBase), adapter});
    EXPECT_NE(missing.err.find("OUT is missing"), std::string::npos) << missing.err;
}

TEST(MergeCommand, AFileSizeLimitIsToldAndLeavesNothingBehind) {
    GARAM_REQUIRE_DATA(kAdapter);
    const TempDir dir;
    const RunResult result = testing::run_shell(
        "ulimit -f 100; $GARAM merge '" + path_of(kBase) + "' '" + path_of(kAdapter) + "' merged",
        dir.path().string());
    EXPECT_EQ(result.status, 2);
    EXPECT_NE(result.err.find("File too large"), std::string::npos) << result.err;
    EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(MergeCommand, MistakesLeaveNothingBehind) {
    GARAM_REQUIRE_DATA(kAdapter);
    const TempDir dir;
    const std::string out = (dir / "merged").string();
    const auto refused = [&](const std::vector<std::string>& arguments, const std::string& part) {
        const RunResult result = run_garam(arguments);
        EXPECT_EQ(result.status, 2);
        EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
        EXPECT_FALSE(std::filesystem::exists(out));
        EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
    };
    refused({"merge", path_of(kBase), path_of(kAdapter), out, "--dtype", "q4_0"}, "f16");
    refused({"merge", path_of(kBase), (dir / "absent").string(), out}, "absent");
    refused(
        {"merge", path_of(kBase), path_of("golden/families/llama-llama3rope-tied/adapter"), out},
        "another base");
    {  // a base that its own config does not describe
        const TempDir models;
        std::filesystem::create_directory(models / "other");
        std::filesystem::copy(path_of(kBase), models / "other");
        Json config = Json::parse_file(models / "other" / "config.json");
        config.set("num_hidden_layers", config.at("num_hidden_layers").integer() + 1);
        std::filesystem::remove(models / "other" / "config.json");
        std::ofstream(models / "other" / "config.json") << config.dump();
        refused({"merge", (models / "other").string(), path_of(kAdapter), out}, "is missing");
    }
    std::filesystem::create_directory(out);
    const RunResult existing = run_garam({"merge", path_of(kBase), path_of(kAdapter), out});
    EXPECT_EQ(existing.status, 2);
    EXPECT_NE(existing.err.find("exists already"), std::string::npos);
    EXPECT_TRUE(std::filesystem::is_empty(out));
}

}  // namespace
}  // namespace garam
