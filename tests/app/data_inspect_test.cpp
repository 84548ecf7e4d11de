// `garam data inspect` as a user runs it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "app/run_garam.h"
#include "garam/core/json.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

using testing::run_garam;
using testing::RunResult;
using testing::TempDir;
using testing::write_tiny_model;

std::string content_of(const std::filesystem::path& file) {
    std::ifstream stream(file, std::ios::binary);
    std::stringstream content;
    content << stream.rdbuf();
    return content.str();
}

std::string line(const std::string& prompt, const std::string& completion) {
    Json json;
    json.set("prompt", prompt);
    json.set("completion", completion);
    return json.dump() + "\n";
}

class DataInspectTest : public ::testing::Test {
  protected:
    void SetUp() override {
        write_tiny_model(dir_ / "model");
        std::string rows;
        for (int i = 0; i < 40; ++i)
            rows += line("ask " + std::to_string(i) + "? ", "answer " + std::to_string(i));
        dir_.write("clean.jsonl", rows);
        dir_.write("rows.jsonl", rows + "\n" + line("ask 3? ", "answer 3"));
        dir_.write("held.jsonl", line("new? ", "yes") + line("ask 5? ", "answer 5"));
        dir_.write("job.yaml",
                   "model: model\n"
                   "data:\n  train: rows.jsonl\n  cache_dir: cache\n"
                   "train:\n  max_length: 64\n  per_device_train_batch_size: 4\n");
    }
    RunResult inspect(const std::vector<std::string>& more) const {
        std::vector<std::string> arguments = {"data", "inspect", "job.yaml"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return run_garam(arguments, dir_.path().string());
    }
    Json json(std::vector<std::string> more) const {
        more.emplace_back("--json");
        const RunResult result = inspect(more);
        EXPECT_EQ(result.status, 0) << result.err;
        return Json::parse(result.out, "out");
    }
    static std::vector<std::string> kinds(const Json& json) {
        std::vector<std::string> kinds;
        for (const Json& warning : json.at("warnings").array())
            kinds.push_back(warning.at("kind").string());
        return kinds;
    }
    TempDir dir_;
};

TEST_F(DataInspectTest, TellsWhatTheRowsAre) {
    const RunResult result = inspect({});
    ASSERT_EQ(result.status, 0) << result.err;
    for (const char* part :
         {"rows.jsonl", "prompt, completion", "⟦answer 0<|endoftext|>⟧", "1 warning\n",
          "duplicates: ", "first: rows.jsonl:42, as rows.jsonl:4"})
        EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
    EXPECT_EQ(result.out.find('\x1b'), std::string::npos);
}

TEST_F(DataInspectTest, NumbersAsJson) {
    const Json found = json({});
    // "ask N? answer N" and the end: 7 + 8 + 1 tokens, with two digits 8 + 9 + 1.
    EXPECT_EQ(found.at("train").at("rows").integer(), 41);
    EXPECT_EQ(found.at("train").at("tokens").integer(), 11 * 16 + 30 * 18);
    EXPECT_EQ(found.at("train").at("targets").integer(), 11 * 9 + 30 * 10);
    EXPECT_EQ(found.at("lengths").at("before").at("max").integer(), 18);
    EXPECT_EQ(found.at("batching").array()[0].at("steps").integer(), 11);
    EXPECT_EQ(found.at("steps").integer(), 33);
    EXPECT_EQ(kinds(found), std::vector<std::string>{"duplicates"});
    EXPECT_EQ(found.at("samples").array().size(), 3u);
    EXPECT_EQ(json({"--samples", "7"}).at("samples").array().size(), 7u);
}

TEST_F(DataInspectTest, CleanRowsGiveNoWarning) {
    const RunResult result = inspect({"data.train=clean.jsonl", "--strict"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("\nNo warnings\n"), std::string::npos) << result.out;
}

TEST_F(DataInspectTest, StrictFailsOnWarnings) {
    const RunResult result = inspect({"--strict"});
    EXPECT_EQ(result.status, 1);
    EXPECT_NE(result.out.find("duplicates"), std::string::npos);
}

TEST_F(DataInspectTest, ValidationThatTrainingHas) {
    const Json found = json({"data.validation=held.jsonl"});
    EXPECT_EQ(kinds(found), (std::vector<std::string>{"leakage", "duplicates"}));
    EXPECT_EQ(found.at("findings").at("leakage").at("examples").array()[0].at("where").string(),
              "held.jsonl:2");
    EXPECT_EQ(found.at("findings").at("leakage").at("examples").array()[1].at("where").string(),
              "rows.jsonl:6");
    EXPECT_EQ(found.at("validation").at("kept").integer(), 2);
}

TEST_F(DataInspectTest, PartHeldOut) {
    const Json found = json({"data.train=clean.jsonl", "data.validation_fraction=0.25"});
    EXPECT_EQ(found.at("train").at("kept").integer(), 30);
    EXPECT_EQ(found.at("validation").at("kept").integer(), 10);
    EXPECT_EQ(found.at("batching").array()[0].at("units").integer(), 30);
    EXPECT_EQ(
        found.at("train").at("tokens").integer() + found.at("validation").at("tokens").integer(),
        10 * 16 + 30 * 18);
    EXPECT_TRUE(kinds(found).empty());
}

TEST_F(DataInspectTest, TruncatedRowsAreCountedWhole) {
    // "ask 10? " are 8 tokens: of rows of two digits nothing is left to learn at 8.
    const Json found = json({"data.train=clean.jsonl", "train.max_length=8"});
    EXPECT_EQ(found.at("train").at("kept").integer(), 10);
    EXPECT_EQ(found.at("train").at("dropped").at("beyond_max_length").integer(), 30);
    EXPECT_EQ(found.at("train").at("tokens").integer(), 10 * 8);
    EXPECT_EQ(found.at("train").at("tokens_lost").integer(), 10 * 8 + 30 * 18);
    EXPECT_EQ(found.at("lengths").at("before").at("max").integer(), 18);
    EXPECT_EQ(found.at("lengths").at("lossless").integer(), 18);
    EXPECT_EQ(kinds(found), (std::vector<std::string>{"dropped", "truncated"}));
}

TEST_F(DataInspectTest, PageIsWritten) {
    const RunResult result = inspect({"--html", "page.html"});
    ASSERT_EQ(result.status, 0) << result.err;
    const std::string page = content_of(dir_ / "page.html");
    EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
    EXPECT_NE(page.find("<title>job.yaml: data</title>"), std::string::npos);
    EXPECT_NE(page.find("rows.jsonl:42"), std::string::npos);
    EXPECT_EQ(inspect({"--html", "no/such/folder/page.html"}).status, 2);
}

TEST_F(DataInspectTest, NeedsNoWeights) {
    const Json with = json({});
    std::filesystem::remove(dir_ / "model" / "model.safetensors");
    const Json without = json({});
    EXPECT_EQ(without.at("train").dump(), with.at("train").dump());
    EXPECT_EQ(without.at("lengths").dump(), with.at("lengths").dump());
}

TEST_F(DataInspectTest, TrainingAndInspectionShareTheCache) {
    const auto says = [](const Json& json, const std::string& part) {
        for (const Json& note : json.at("notes").array())
            if (note.string().find(part) != std::string::npos) return true;
        return false;
    };
    EXPECT_TRUE(says(json({}), "tokenised now"));
    EXPECT_TRUE(says(json({}), "from the cache"));
    const RunResult plan = run_garam({"plan", "job.yaml"}, dir_.path().string());
    EXPECT_EQ(plan.status, 0) << plan.err;
    EXPECT_NE((plan.out + plan.err).find("from the cache"), std::string::npos) << plan.out;
}

TEST_F(DataInspectTest, WhatIsMissingIsNamed) {
    const auto refused = [&](const std::vector<std::string>& more, const std::string& part) {
        const RunResult result = inspect(more);
        EXPECT_EQ(result.status, 2) << result.out;
        EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
    };
    refused({"model="}, "model is not set");
    refused({"model=nowhere/at_all/here"}, "nowhere/at_all/here");
    refused({"data.train=nothing.jsonl"}, "nothing.jsonl");
    // Nothing to train on: with the count, the first row and the reason.
    refused({"train.max_length=4"}, "none of its 41 rows has a token to train on");
    const RunResult result = run_garam({"data", "inpsect", "job.yaml"}, dir_.path().string());
    EXPECT_EQ(result.status, 2);
    EXPECT_NE(result.err.find("inspect"), std::string::npos) << result.err;
}

// Counted once more from the file: SMS Spam Collection, EXAONE-3.5's tokenizer without its weights.
TEST_F(DataInspectTest, RealSpamSet) {
    GARAM_REQUIRE_DATA("spam/SMSSpamCollection");
    GARAM_REQUIRE_DATA("tokenizers/exaone-3.5");
    std::ifstream stream(testing::path_of("spam/SMSSpamCollection"));
    std::string rows;
    std::map<std::string, int> labels;
    std::set<std::pair<std::string, std::string>> seen;
    std::map<std::string, std::set<std::string>> answers;
    std::vector<std::pair<std::string, std::string>> all;
    int duplicates = 0;
    for (std::string text; std::getline(stream, text);) {
        const std::size_t tab = text.find('\t');
        const std::string label = text.substr(0, tab);
        text = text.substr(tab + 1);
        if (text.ends_with('\r')) text.pop_back();
        Json row;
        row.set("text", text);
        row.set("label", label);
        rows += row.dump() + "\n";
        ++labels[label];
        // The chat template trims nothing that is inside of a question.
        duplicates += !seen.insert({text, label}).second;
        answers[text].insert(label);
        all.emplace_back(text, label);
    }
    int conflicting = 0;
    for (const auto& [text, label] : all)
        conflicting += answers[text].size() > 1;
    dir_.write("sms.jsonl", rows);
    const Json found =
        json({"model=" + testing::path_of("tokenizers/exaone-3.5"), "data.train=sms.jsonl",
              "data.instruction=Spam or ham?\n{text}", "train.max_length=1024"});
    EXPECT_EQ(found.at("train").at("kept").integer(), 5574);
    EXPECT_EQ(found.at("findings").at("duplicates").at("count").integer(), duplicates);
    EXPECT_EQ(found.at("findings").at("conflicting_answers").at("count").integer(), conflicting);
    ASSERT_EQ(found.at("answers").array().size(), 2u);
    EXPECT_EQ(found.at("answers").array()[0].at("text").string(), "ham");
    EXPECT_EQ(found.at("answers").array()[0].at("count").integer(), labels["ham"]);
    EXPECT_EQ(found.at("answers").array()[1].at("count").integer(), labels["spam"]);
}

}  // namespace
}  // namespace garam
