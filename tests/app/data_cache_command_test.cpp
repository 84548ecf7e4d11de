#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "app/run_garam.h"
#include "garam/core/json.h"
#include "garam/data/samples/sample_cache.h"
#include "testing/temp_dir.h"

namespace garam {
namespace {

using testing::run_garam;

class DataCacheCommand : public ::testing::Test {
  protected:
    void keep(int number, int rows) {
        Json key;
        key.set("number", number);
        SampleCache(folder_).get(key, [&](SampleTableWriter& writer) {
            ReadReport report;
            report.file = "rows" + std::to_string(number) + ".jsonl";
            for (int i = 0; i < rows; ++i)
                writer.append({{1, 2, 3}, {1, 2, 3}, i}, 3);
            report.kept = report.rows = rows;
            return report;
        });
    }
    testing::RunResult run(std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), {"data", "cache"});
        arguments.insert(arguments.end(), {"--cache-dir", folder_.string()});
        return run_garam(arguments);
    }

    testing::TempDir dir_;
    std::filesystem::path folder_ = dir_ / "cache";
};

TEST_F(DataCacheCommand, ListsAndPrunes) {
    auto result = run({});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("0 sets of samples, 0 B"), std::string::npos) << result.out;
    EXPECT_FALSE(std::filesystem::exists(folder_));  // a look makes none

    keep(1, 1000);
    keep(2, 2000);
    result = run({"list"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("1000 samples"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("rows2.jsonl"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("2 sets of samples, 10"), std::string::npos) << result.out;

    const Json json = Json::parse(run({"--json"}).out, "output");
    ASSERT_EQ(json.at("entries").array().size(), 2u);
    EXPECT_GT(json.at("bytes").integer(), 3000 * 36);
    EXPECT_EQ(json.at("entries").array()[0].at("source").string().substr(0, 4), "rows");

    EXPECT_EQ(run({"prune", "--older-than", "1h", "--max-size", "1GB"}).out.substr(0, 9),
              "removed 0");
    result = run({"prune", "--max-size", "0", "--json"});
    const Json pruned = Json::parse(result.out, "output");
    EXPECT_EQ(pruned.at("removed").array().size(), 2u);
    EXPECT_EQ(pruned.at("removed_bytes").integer(), json.at("bytes").integer());
    EXPECT_EQ(pruned.at("bytes").integer(), 0);
    EXPECT_EQ(pruned.at("entries").array().size(), 0u);
}

TEST_F(DataCacheCommand, SaysWhatIsWrong) {
    const auto expect_refused = [&](const std::vector<std::string>& arguments, const char* part) {
        const auto result = run(arguments);
        EXPECT_EQ(result.status, 2);
        EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
    };
    keep(1, 10);
    expect_refused({"prune"}, "say what to remove");
    expect_refused({"clean"}, "take list or prune");
    expect_refused({"list", "--max-size", "1GB"}, "are for garam data cache prune");
    expect_refused({"prune", "--max-size", "1 G"}, "is not a number with one of B, kB");
    expect_refused({"prune", "--older-than", "-1d"}, "--older-than: \"-1d\"");
    expect_refused({"prune", "--older-than", "30"}, "s, min, h, d, w");
    expect_refused({"prune", "--max-siz", "0"}, "did you mean --max-size?");
    EXPECT_EQ(Json::parse(run({"--json"}).out, "output").at("entries").array().size(), 1u);

    EXPECT_NE(run_garam({"data", "cahce"}).err.find("did you mean data cache?"), std::string::npos);
    EXPECT_EQ(run_garam({"data"}).status, 2);
    EXPECT_NE(run_garam({"data", "--help"}).out.find("cache"), std::string::npos);
    EXPECT_NE(run_garam({"help", "data", "cache"}).out.find("--older-than"), std::string::npos);
    EXPECT_NE(run_garam({"--help"}).out.find("data"), std::string::npos);
}

}  // namespace
}  // namespace garam
