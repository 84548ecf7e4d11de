#include "garam/train/tensorboard_log.h"

#include <gtest/gtest.h>

#include "testing/temp_dir.h"

namespace garam {
namespace {

// The file format itself is tested beside io/event_file; here, that each report's values go under
// their tags.
TEST(TensorboardLog, ReportsGoUnderTransformersTags) {
    const testing::TempDir dir;
    {
        TensorboardLog log(dir / "runs");
        StepReport step;
        step.step = 3;
        step.loss = 1.5;
        log.on_step(step);
        EvalReport evaluation;
        evaluation.step = 3;
        evaluation.eval_loss = 2.5;
        log.on_evaluation(evaluation);
    }
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(dir / "runs")) {
        ++files;
        EXPECT_EQ(entry.path().filename().string().rfind("events.out.tfevents.", 0), 0u);
        const std::string content = testing::read_file(entry.path());
        for (const char* tag :
             {"train/loss", "train/grad_norm", "train/learning_rate", "train/epoch",
              "train/tokens_per_second", "eval/loss", "eval/runtime"})
            EXPECT_NE(content.find(tag), std::string::npos) << tag;
        // 1.5f and 2.5f as they lie in the file, after their tags.
        const auto value_at = [&](const std::string& tag, float value) {
            const std::string bytes(reinterpret_cast<const char*>(&value), sizeof value);
            const std::size_t found = content.find(bytes, content.find(tag));
            return found != std::string::npos && found - content.find(tag) < tag.size() + 8;
        };
        EXPECT_TRUE(value_at("train/loss", 1.5f));
        EXPECT_TRUE(value_at("eval/loss", 2.5f));
    }
    EXPECT_EQ(files, 1);
}

}  // namespace
}  // namespace garam
