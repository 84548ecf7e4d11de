#include <gtest/gtest.h>

#include "app/run_garam.h"
#include "testing/cards.h"
#include "testing/temp_dir.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

using testing::run_garam;
using testing::RunResult;
using testing::TempDir;

TEST(TuneCommand, NeedsACardAndSaysSo) {
    const TempDir dir;
    testing::write_tiny_model(dir / "model");
    dir.write("train.jsonl", "{\"prompt\": \"abc\", \"completion\": \"def\"}\n");
    const RunResult result = run_garam(
        {"tune", "model=model", "data.train=train.jsonl", "device=cpu"}, dir.path().string());
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err,
              "garam: error: garam tune needs a card: products are tuned on cards only "
              "(device=cpu)\n");
    EXPECT_FALSE(std::filesystem::exists(dir / "products.json"));
}

TEST(TuneCommand, CudaWritesATableThatTrainingTakes) {
    if (testing::cards().empty()) GTEST_SKIP() << "no card";
    const TempDir dir;
    testing::write_tiny_model(dir / "model");
    dir.write("train.jsonl", "{\"prompt\": \"abc\", \"completion\": \"def\"}\n");
    const std::vector<std::string> settings = {"model=model", "data.train=train.jsonl",
                                               "device=cuda", "train.max_steps=2"};
    std::vector<std::string> arguments = settings;
    arguments.insert(arguments.begin(), "tune");
    const RunResult tuned = run_garam(arguments, dir.path().string());
    EXPECT_EQ(tuned.status, 0) << tuned.err;
    EXPECT_NE(tuned.out.find("products of a step"), std::string::npos) << tuned.out;
    ASSERT_TRUE(std::filesystem::exists(dir / "products.json"));
    arguments = settings;
    arguments.insert(arguments.begin(), "train");
    arguments.push_back("train.tuned_products=products.json");
    EXPECT_EQ(run_garam(arguments, dir.path().string()).status, 0);
    EXPECT_TRUE(std::filesystem::exists(dir.path() / "trainer_output" / "products.json"));
    const RunResult answer =
        run_garam({"generate", "model", "--prompt", "abc", "--max-new-tokens", "4", "--device",
                   "cuda", "--tuned-products", "products.json"},
                  dir.path().string());
    EXPECT_EQ(answer.status, 0) << answer.err;
}

}  // namespace
}  // namespace garam
