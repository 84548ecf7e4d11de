// `garam eval` as a user runs it.
#include <gtest/gtest.h>

#include <cmath>

#include "app/run_garam.h"
#include "garam/core/json.h"
#include "testing/temp_dir.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

using testing::run_garam;
using testing::RunResult;
using testing::TempDir;
using testing::write_tiny_model;

class EvalTest : public ::testing::Test {
  protected:
    void SetUp() override {
        write_tiny_model(dir_ / "model");
        dir_.write("rows.jsonl",
                   "{\"text\": \"win a prize\", \"label\": \"spam\"}\n"
                   "{\"text\": \"see you at six\", \"label\": \"ham\"}\n"
                   "{\"text\": \"free money\", \"label\": \"spam\"}\n");
        dir_.write("train.jsonl", "{\"text\": \"?\", \"label\": \"unsure\"}\n");
        dir_.write("text.jsonl", "{\"text\": \"one two three\"}\n{\"text\": \"four\"}\n");
        dir_.write("spam.yaml",
                   "model: model\n"
                   "data:\n  train: train.jsonl\n  validation: rows.jsonl\n"
                   "  instruction: \"Spam or ham?\"\n"
                   "train:\n  bf16: false\n");
    }
    RunResult eval(const std::vector<std::string>& more) const {
        std::vector<std::string> arguments = {"eval"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return run_garam(arguments, dir_.path().string());
    }
    void expect_refused(const std::vector<std::string>& arguments, const std::string& part) const {
        const RunResult result = eval(arguments);
        EXPECT_EQ(result.status, 2) << result.out;
        EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
    }
    TempDir dir_;
};

TEST_F(EvalTest, LabelsAreCounted) {
    const RunResult result = eval({"spam.yaml", "--json", "--show", "2"});
    ASSERT_EQ(result.status, 0) << result.err;
    const Json json = Json::parse(result.out, "out");
    EXPECT_EQ(json.at("rows").integer(), 3);
    const Json& confusion = json.at("confusion");
    // Labels of both files, sorted: a label that only training had can be predicted.
    ASSERT_EQ(confusion.at("labels").array().size(), 3u);
    EXPECT_EQ(confusion.at("labels").array()[0].string(), "ham");
    EXPECT_EQ(confusion.at("labels").array()[2].string(), "unsure");
    std::int64_t right = 0;
    std::int64_t spam = 0;
    for (std::size_t t = 0; t < 3; ++t) {
        const Json::Array& row = confusion.at("counts").array()[t].array();
        right += row[t].integer();
        if (t == 1)
            for (const Json& count : row)
                spam += count.integer();
    }
    EXPECT_EQ(spam, 2);
    EXPECT_DOUBLE_EQ(json.at("accuracy").number(), static_cast<double>(right) / 3);
    EXPECT_EQ(json.at("per_label").at("spam").at("support").integer(), 2);
    ASSERT_EQ(json.at("examples").array().size(), 2u);
    const Json& example = json.at("examples").array()[0];
    EXPECT_EQ(example.at("text").string(), "win a prize");
    EXPECT_EQ(example.at("label").string(), "spam");
    EXPECT_GE(example.at("probability").number(), 1.0 / 3);
    EXPECT_LE(example.at("probability").number(), 1);
}

TEST_F(EvalTest, TextForReading) {
    const RunResult result = eval({"spam.yaml", "--show", "1"});
    ASSERT_EQ(result.status, 0) << result.err;
    for (const char* part : {"accuracy", "macro F1", "precision", "confusion", "\"win a prize\""})
        EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
}

TEST_F(EvalTest, PerplexityOfText) {
    const RunResult result =
        eval({"--model", "model", "--data", "text.jsonl", "--dtype", "f32", "--json"});
    ASSERT_EQ(result.status, 0) << result.err;
    const Json json = Json::parse(result.out, "out");
    EXPECT_EQ(json.at("rows").integer(), 2);
    // Bytes and the EOS of each row, less the first token of each: nothing comes before it.
    EXPECT_EQ(json.at("target_tokens").integer(), 13 + 4);
    EXPECT_NEAR(json.at("perplexity").number(), std::exp(json.at("loss").number()), 1e-9);
    // A random model is near the uniform guess over its 260 tokens.
    EXPECT_NEAR(json.at("loss").number(), std::log(260.0), 1.5);
}

TEST_F(EvalTest, LabelsCannotSteerTheTerminal) {
    dir_.write("rows.jsonl",
               "{\"text\": \"a\", \"label\": \"\\u001b[31mred\"}\n"
               "{\"text\": \"b\", \"label\": \"plain\"}\n");
    const RunResult result = eval({"spam.yaml", "--show", "2"});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out.find('\x1b'), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("?[31mred"), std::string::npos) << result.out;
}

TEST_F(EvalTest, PerplexityOfLabelledRowsIsAskedFor) {
    const RunResult result = eval({"spam.yaml", "--perplexity", "--json"});
    ASSERT_EQ(result.status, 0) << result.err;
    // spam, ham, spam, each with the token that ends the turn.
    EXPECT_EQ(Json::parse(result.out, "out").at("target_tokens").integer(), 5 + 4 + 5);
}

// Without an adapter, too, the base is that of training.
TEST_F(EvalTest, ABaseInFourBitsIsEvaluatedAsSuch) {
    ASSERT_EQ(run_garam({"quantize", "model", "nf4", "--double"}, dir_.path().string()).status, 0);
    const auto loss = [&](const std::vector<std::string>& more) {
        std::vector<std::string> arguments = {"spam.yaml", "--perplexity", "--json"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const RunResult result = eval(arguments);
        EXPECT_EQ(result.status, 0) << result.err;
        return Json::parse(result.out, "out").at("loss").number();
    };
    const double want = loss({"model=nf4"});
    EXPECT_EQ(
        loss({"load_in_4bit=true", "bnb_4bit_quant_type=nf4", "bnb_4bit_use_double_quant=true"}),
        want);
    EXPECT_EQ(loss({"model=nf4", "load_in_4bit=true"}), want);
    EXPECT_NE(loss({}), want);
    expect_refused({"spam.yaml", "load_in_4bit=true", "bnb_4bit_block_size=96"},
                   "bnb_4bit_block_size is 96");
    expect_refused({"spam.yaml", "load_in_4bit=true", "llm_int8_skip_modules=[absent]"},
                   "skipped module absent is none of");
}

TEST_F(EvalTest, OptionsAndOverridesCountMoreThanTheConfig) {
    const RunResult result =
        eval({"spam.yaml", "data.instruction=", "--data", "text.jsonl", "--json"});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(Json::parse(result.out, "out").at("rows").integer(), 2);
}

TEST_F(EvalTest, MistakesAreNamed) {
    expect_refused({"--data", "text.jsonl"}, "model");
    expect_refused({"--model", "model"}, "data.validation");
    expect_refused({"spam.yaml", "--data", "text.jsonl"}, "label");
    expect_refused({"spam.yaml", "--data", "absent.jsonl"}, "absent.jsonl");
    expect_refused({"spam.yaml", "model=absent"}, "absent");
    expect_refused({"--model", "model", "--data", "text.jsonl", "--show", "3"}, "instruction");
    expect_refused({"spam.yaml", "data.instructoin=x"}, "data.instruction");
    expect_refused({"spam.yaml", "adapter=absent"}, "absent");
}

}  // namespace
}  // namespace garam
