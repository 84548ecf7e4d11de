// examples/spam-agent as a user runs it: before and after training, by its configs alone.
#include <gtest/gtest.h>

#include <cstdlib>

#include "app/run_garam.h"
#include "garam/app/load_job.h"
#include "garam/core/error.h"
#include "garam/core/json.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

using testing::run_garam;
using testing::TempDir;

std::filesystem::path example(const char* name) {
    return testing::source_dir() / "examples" / "spam-agent" / name;
}

class SpamAgent : public ::testing::Test {
  protected:
    Json evaluate(std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), "eval");
        arguments.emplace_back("--json");
        const auto run = run_garam(arguments, testing::source_dir().string());
        EXPECT_EQ(run.status, 0) << run.err;
        return Json::parse(run.status == 0 ? run.out : "{}", "garam eval");
    }
    // Of metrics.jsonl, the line of the last evaluation.
    static Json last_evaluation(const std::filesystem::path& folder) {
        Json last;
        std::string text = testing::read_file(folder / "metrics.jsonl");
        for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos;
             begin = end + 1) {
            const Json line = Json::parse(text.substr(begin, end - begin), "metrics.jsonl");
            if (line.find("eval_loss") != nullptr) last = line;
        }
        return last;
    }
    void expect_same_figures(const Json& line, const Json& evaluated) {
        for (const auto& [name, value] : evaluated.at("metrics").object()) {
            // ece is a sum of probabilities, which the two may sum in another order.
            const double tolerance = name == "eval_ece" ? 1e-3 : 0;
            EXPECT_NEAR(line.at(name).number(), value.number(), tolerance) << name;
        }
        EXPECT_EQ(line.at("eval_confusion_matrix").dump(), evaluated.at("confusion").dump());
    }

    TempDir dir_;
};

// Of a clone alone: a random model of bytes learns the form of the answer, from rows in Arrow files.
TEST_F(SpamAgent, LearnsToAnswerInJson) {
    testing::TinyModel model;
    model.max_positions = 1024;
    write_tiny_model(dir_ / "model", model);
    std::vector<std::string> settings = {example("smollm2.yaml").string(),
                                         "model=" + (dir_ / "model").string(),
                                         "device=cpu",
                                         "data.cache_dir=" + (dir_ / "cache").string(),
                                         "train.bf16=false",
                                         "train.max_length=768",
                                         "train.output_dir=" + (dir_ / "run").string(),
                                         "eval.generate_rows=40"};
    const Json before = evaluate(settings);
    EXPECT_EQ(before.at("rows").integer(), 40);
    EXPECT_EQ(before.at("unparsable").integer(), 40);
    EXPECT_EQ(before.at("f1").number(), 0);

    std::vector<std::string> training = settings;
    training.insert(training.begin(), "train");
    for (const char* key : {"train.learning_rate=1e-2", "train.num_train_epochs=6",
                            "train.load_best_model_at_end=false"})
        training.emplace_back(key);
    const auto run = run_garam(training, testing::source_dir().string());
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_NE(run.err.find("evaluations answer 40 rows (JSON with \"verdict\")"), std::string::npos)
        << run.err;
    EXPECT_NE(run.err.find("eval_f1 "), std::string::npos) << run.err;

    settings.push_back("adapter=" + (dir_ / "run" / "adapter").string());
    const Json after = evaluate(settings);
    EXPECT_LE(after.at("unparsable").integer(), 4);
    EXPECT_GE(after.at("accuracy").number(), 0.4);
    expect_same_figures(last_evaluation(dir_ / "run"), after);
    // For reading.
    settings.insert(settings.begin(), "eval");
    settings.insert(settings.end(), {"--show", "1"});
    const auto table = run_garam(settings, testing::source_dir().string());
    EXPECT_EQ(table.status, 0) << table.err;
    for (const char* part : {"40 of 80 rows are answered", " -> ", "verdict", "F1 ", "ece "})
        EXPECT_NE(table.out.find(part), std::string::npos) << part << "\n" << table.out;
}

TEST_F(SpamAgent, TheConfigOfExaoneLoads) {
    JobConfig config;
    if (describe(config).find("load_in_4bit") == nullptr)
        GTEST_SKIP() << "4-bit bases are not part of this build";
    const LoadedJob job = load_job({example("exaone.yaml").string()});
    EXPECT_EQ(job.config.lora.r, 16);
    EXPECT_EQ(job.config.train.optim, "paged_adamw_8bit");
    EXPECT_EQ(job.config.train.warmup_steps, 100);
    EXPECT_EQ(job.config.eval.positive_label, "spam");
    EXPECT_EQ(job.config.train.metric_for_best_model, "f1");
    EXPECT_NE(job.yaml.find("load_in_4bit: true"), std::string::npos) << job.yaml;
}

TEST_F(SpamAgent, AllConfigsAskTheSame) {
    const LoadedJob base = load_job({example("smollm2.yaml").string(), "model=m"});
    for (const char* overlay : {"sms.yaml", "korean.yaml"}) {
        const LoadedJob job =
            load_job({example("smollm2.yaml").string(), example(overlay).string(), "model=m"});
        EXPECT_EQ(job.config.data.answer, base.config.data.answer);
        EXPECT_GT(job.config.data.validation_fraction, 0);
    }
}

// SmolLM2-135M-Instruct on real messages: a few minutes on two processors.
class SlowSpamAgent : public SpamAgent {
  protected:
    struct Figures {
        Json before, after;
    };
    Figures train_on(const char* overlay, const std::string& data,
                     const std::vector<std::string>& keys) {
        const char* const model = std::getenv("GARAM_TEST_MODEL");
        std::vector<std::string> settings = {example("smollm2.yaml").string(),
                                             example(overlay).string(),
                                             std::string("model=") + model,
                                             "device=cpu",
                                             "data.train=" + data,
                                             "data.cache_dir=" + (dir_ / "cache").string(),
                                             "train.output_dir=" + (dir_ / "run").string()};
        settings.insert(settings.end(), keys.begin(), keys.end());
        Figures figures;
        figures.before = evaluate(settings);
        std::vector<std::string> training = settings;
        training.insert(training.begin(), "train");
        const auto run = run_garam(training, testing::source_dir().string());
        EXPECT_EQ(run.status, 0) << run.err;
        settings.push_back("adapter=" + (dir_ / "run" / "adapter").string());
        figures.after = evaluate(settings);
        for (const auto& [name, json] :
             {std::pair{"before", &figures.before}, std::pair{"after", &figures.after}})
            std::printf("%s: %s: %s\n", overlay, name, json->at("metrics").dump().c_str());
        return figures;
    }
};

TEST_F(SlowSpamAgent, SmsBeforeAndAfter) {
    if (std::getenv("GARAM_TEST_MODEL") == nullptr) GTEST_SKIP() << "GARAM_TEST_MODEL is not set";
    GARAM_REQUIRE_DATA("spam/SMSSpamCollection");
    const Figures figures =
        train_on("sms.yaml", testing::path_of("spam/SMSSpamCollection"),
                 {"train.max_steps=120", "train.per_device_train_batch_size=4",
                  "train.eval_steps=60", "train.save_steps=60", "eval.generate_rows=100"});
    EXPECT_EQ(figures.after.at("rows").integer(), 100);
    EXPECT_EQ(figures.after.at("unparsable").integer(), 0);
    EXPECT_GT(figures.after.at("accuracy").number(), figures.before.at("accuracy").number());
    EXPECT_GT(figures.after.at("f1").number(), 0.8);
}

TEST_F(SlowSpamAgent, KoreanBeforeAndAfter) {
    if (std::getenv("GARAM_TEST_MODEL") == nullptr) GTEST_SKIP() << "GARAM_TEST_MODEL is not set";
    GARAM_REQUIRE_DATA("spam/korean_smishing.csv");
    const Figures figures =
        train_on("korean.yaml", testing::path_of("spam/korean_smishing.csv"),
                 {"train.max_steps=80", "train.per_device_train_batch_size=4",
                  "train.eval_steps=40", "train.save_steps=40", "eval.generate_rows=60"});
    EXPECT_EQ(figures.after.at("unparsable").integer(), 0);
    EXPECT_GT(figures.after.at("macro_f1").number(), figures.before.at("macro_f1").number());
    EXPECT_GT(figures.after.at("f1").number(), 0.9);
}

}  // namespace
}  // namespace garam
