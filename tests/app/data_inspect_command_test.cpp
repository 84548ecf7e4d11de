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
         {"rows.jsonl", "prompt, completion", "⟦answer 0<|im_end|>⟧", "1 warning\n",
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
    const Json found = json(
        {"data.train=clean.jsonl", "train.max_length=8", "train.per_device_train_batch_size=2"});
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
    EXPECT_NE((plan.out + plan.err).find("kept from before"), std::string::npos) << plan.out;
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

// Real sets as they stand, with EXAONE-3.5's tokenizer and no weights; counted once more from the files.
class DataInspectRealSet : public DataInspectTest {
  protected:
    Json inspect_real(const char* file, std::vector<std::string> more) const {
        more.insert(more.end(), {"model=" + testing::path_of("tokenizers/exaone-3.5"),
                                 "data.train=" + testing::path_of(file), "train.max_length=1024"});
        return json(more);
    }
    static std::map<std::string, std::int64_t> answers(const Json& found) {
        std::map<std::string, std::int64_t> counts;
        for (const Json& answer : found.at("answers").array())
            counts[answer.at("text").string()] = answer.at("count").integer();
        return counts;
    }
};

TEST_F(DataInspectRealSet, SmsSpam) {
    GARAM_REQUIRE_DATA("spam/SMSSpamCollection");
    GARAM_REQUIRE_DATA("tokenizers/exaone-3.5");
    const std::string file = testing::path_of("spam/SMSSpamCollection");
    std::ifstream stream(file);
    std::map<std::string, std::int64_t> labels;
    std::map<std::string, std::int64_t> seen;  // its first line
    std::map<std::string, std::set<std::string>> labels_of;
    std::vector<std::string> texts;
    std::int64_t duplicates = 0;
    std::string first;
    for (std::string row; std::getline(stream, row);) {
        const std::size_t tab = row.find('\t');
        texts.push_back(row.substr(tab + 1));
        ++labels[row.substr(0, tab)];
        labels_of[texts.back()].insert(row.substr(0, tab));
        const auto line = static_cast<std::int64_t>(texts.size());
        const auto [at, is_new] = seen.try_emplace(row, line);
        if (is_new) continue;
        if (duplicates++ == 0) first = std::to_string(line) + " " + std::to_string(at->second);
    }
    const auto conflicts = std::count_if(texts.begin(), texts.end(), [&](const std::string& text) {
        return labels_of[text].size() > 1;
    });
    const Json found =
        inspect_real("spam/SMSSpamCollection",
                     {"data.format=tsv", "data.csv_header=false", "data.csv_columns=[label, text]",
                      "data.csv_quote=", "data.instruction=Spam or ham?\n{text}"});
    EXPECT_EQ(found.at("train").at("kept").integer(), 5574);
    EXPECT_EQ(answers(found), labels);
    const Json& findings = found.at("findings");
    EXPECT_EQ(findings.at("duplicates").at("count").integer(), duplicates);
    EXPECT_EQ(findings.at("conflicting_answers").at("count").integer(), conflicts);
    std::string told;
    for (const Json& example : findings.at("duplicates").at("examples").array()) {
        const std::string where = example.at("where").string();
        EXPECT_TRUE(where.starts_with(file + ":")) << where;
        told += (told.empty() ? "" : " ") + where.substr(file.size() + 1);
    }
    EXPECT_EQ(told, first);
}

TEST_F(DataInspectRealSet, KoreanSmishing) {
    GARAM_REQUIRE_DATA("spam/korean_smishing.csv");
    GARAM_REQUIRE_DATA("tokenizers/exaone-3.5");
    std::ifstream stream(testing::path_of("spam/korean_smishing.csv"));
    std::map<std::string, std::int64_t> labels;
    std::string row;
    std::getline(stream, row);
    for (; std::getline(stream, row);) {
        while (row.ends_with('\r') || row.ends_with('"'))
            row.pop_back();
        ++labels[row.substr(row.find_last_of(",\"") + 1)];
    }
    const Json found = inspect_real("spam/korean_smishing.csv", {"data.instruction=무엇입니까?"});
    EXPECT_EQ(found.at("train").at("kept").integer(), 327);
    EXPECT_EQ(answers(found), labels);
    EXPECT_EQ(found.at("findings").at("duplicates").at("count").integer(), 0);
}

TEST_F(DataInspectRealSet, Alpaca) {
    GARAM_REQUIRE_DATA("instruct/alpaca_en_demo.json");
    GARAM_REQUIRE_DATA("tokenizers/exaone-3.5");
    const Json rows = Json::parse_file(testing::path_of("instruct/alpaca_en_demo.json"));
    std::set<std::string> seen;
    std::int64_t duplicates = 0;
    for (const Json& row : rows.array())
        duplicates += !seen.insert(row.dump()).second;
    const Json found = inspect_real("instruct/alpaca_en_demo.json", {});
    EXPECT_EQ(found.at("train").at("kept").integer(),
              static_cast<std::int64_t>(rows.array().size()));
    EXPECT_EQ(found.at("findings").at("duplicates").at("count").integer(), duplicates);
    EXPECT_TRUE(found.at("answers").array().empty());
}

}  // namespace
}  // namespace garam
