// The configs of examples/data on the sets that they are for, with a tiny model: by config alone, as a user
// runs them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "app/run_garam.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam {
namespace {

using testing::path_of;
using testing::run_garam;
using testing::TempDir;

constexpr const char* kModel = "golden/stories260K-hf";

struct Example {
    const char* name;
    std::vector<const char*> train;
    std::vector<const char*> validation;
    const char* told;  // of what the rows were taken for
};

class ExampleConfigs : public ::testing::TestWithParam<Example> {
  protected:
    // "key=[path, path]".
    static std::string setting(const char* key, const std::vector<const char*>& files) {
        std::string list;
        for (const char* file : files)
            list += (list.empty() ? "" : ", ") + path_of(file);
        return std::string(key) + "=[" + list + "]";
    }
    std::vector<std::string> arguments(const char* command) const {
        const Example& example = GetParam();
        const auto config =
            testing::source_dir() / "examples" / "data" / (std::string(example.name) + ".yaml");
        std::vector<std::string> all = {command,
                                        config.string(),
                                        "model=" + path_of(kModel),
                                        "device=cpu",
                                        "data.cache_dir=" + (dir_ / "cache").string(),
                                        "data.max_rows=200",
                                        "train.max_length=256",
                                        setting("data.train", example.train)};
        if (!example.validation.empty())
            all.push_back(setting("data.validation", example.validation));
        return all;
    }

    TempDir dir_;
};

TEST_P(ExampleConfigs, TrainsAFewSteps) {
    GARAM_REQUIRE_DATA(kModel);
    for (const char* file : GetParam().train)
        GARAM_REQUIRE_DATA(file);
    std::vector<std::string> training = arguments("train");
    for (const char* key : {"train.max_steps=2", "train.per_device_train_batch_size=2",
                            "train.per_device_eval_batch_size=2", "train.logging_steps=1",
                            "train.report_to=none", "train.save_steps=0"})
        training.emplace_back(key);
    training.push_back("train.output_dir=" + (dir_ / "run").string());
    const auto run = run_garam(training);
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_NE(run.err.find(GetParam().told), std::string::npos) << run.err;
    EXPECT_NE(run.err.find("step 2/2"), std::string::npos) << run.err;
    EXPECT_NE(run.err.find("eval_loss"), std::string::npos) << run.err;
    EXPECT_TRUE(std::filesystem::exists(dir_ / "run" / "adapter" / "adapter_model.safetensors"));
    // The second time nothing is tokenised.
    const auto plan = run_garam(arguments("plan"));
    EXPECT_EQ(plan.status, 0) << plan.err;
    EXPECT_NE(plan.out.find("kept from before"), std::string::npos) << plan.out;
}

INSTANTIATE_TEST_SUITE_P(
    All, ExampleConfigs,
    ::testing::Values(
        Example{"korean_smishing", {"spam/korean_smishing.csv"}, {}, "text, label"},
        Example{"sms_spam", {"spam/SMSSpamCollection"}, {}, "text, label"},
        Example{"youtube_comments", {"arrow/youtube-comments/data"}, {}, "text from \"example\""},
        Example{"multi30k",
                {"translation/multi30k/train.en.gz", "translation/multi30k/train.de.gz"},
                {"translation/multi30k/val.en.gz", "translation/multi30k/val.de.gz"},
                "instruction from \"english\", output from \"german\""},
        Example{"alpaca", {"instruct/alpaca_en_demo.json"}, {}, "instruction, input, output"},
        Example{"wikitext", {"text/wikitext2.valid.raw"}, {}, "text"}),
    [](const auto& example) { return std::string(example.param.name); });

}  // namespace
}  // namespace garam
