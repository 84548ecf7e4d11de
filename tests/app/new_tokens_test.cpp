// Tokens that a job adds, from training to the file that others load, as a user has them.
#include <gtest/gtest.h>

#include <fstream>

#include "app/run_garam.h"
#include "garam/core/json.h"
#include "garam/io/model_files.h"
#include "garam/models/vocabulary_size.h"
#include "garam/text/tokenizer.h"
#include "testing/temp_dir.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

using testing::run_garam;
using testing::RunResult;
using testing::TempDir;

class NewTokens : public ::testing::Test {
  protected:
    void train(bool tied, const std::vector<std::string>& more = {}) {
        testing::TinyModel tiny;
        tiny.tied = tied;
        write_tiny_model(dir_ / "model", tiny);
        std::ofstream rows(dir_ / "rows.jsonl");
        for (int i = 0; i < 6; ++i)
            rows << R"({"prompt": "<|q|>why", "completion": "<|think|>xyz<|done|>"})" << '\n';
        rows.close();
        std::vector<std::string> arguments = {"train",
                                              "model=model",
                                              "data.train=rows.jsonl",
                                              "data.add_special_tokens=<|q|>,<|think|>,<|done|>",
                                              "device=cpu",
                                              "train.output_dir=run",
                                              "train.max_steps=60",
                                              "train.bf16=false",
                                              "train.learning_rate=0.03",
                                              "train.per_device_train_batch_size=2",
                                              "lora.target_modules=all-linear"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const RunResult result = run_garam(arguments, dir_.path().string());
        ASSERT_EQ(result.status, 0) << result.err;
    }
    std::string answer(std::vector<std::string> model) {
        model.insert(model.begin(), "generate");
        for (const char* more : {"--prompt", "<|q|>why", "--temperature", "0", "--max-new-tokens",
                                 "4", "--dtype", "f32", "--device", "cpu"})
            model.emplace_back(more);
        const RunResult result = run_garam(model, dir_.path().string());
        EXPECT_EQ(result.status, 0) << result.err;
        return result.out;
    }
    TempDir dir_;
};

TEST_F(NewTokens, GenerateMergeAndExportKnowThem) {
    for (const bool tied : {true, false}) {
        SCOPED_TRACE(tied ? "tied" : "untied");
        const std::string run = tied ? "run" : "run2";
        if (tied) {
            train(true);
        } else {
            train(false, {"lora.modules_to_save=lm_head", "train.output_dir=run2"});
        }
        const std::string adapter = run + "/adapter";
        const std::string with_adapter = answer({"model", "--adapter", adapter});
        EXPECT_NE(with_adapter.find("xyz"), std::string::npos) << with_adapter;

        const std::string merged = run + "-merged";
        RunResult result = run_garam({"merge", "model", adapter, merged}, dir_.path().string());
        ASSERT_EQ(result.status, 0) << result.err;
        EXPECT_EQ(vocabulary_size(ModelFiles::open(dir_ / merged)), 262);
        const auto tokenizer = load_tokenizer(dir_ / merged);
        EXPECT_EQ(tokenizer->encode_ids("<|q|><|think|><|done|>", {}),
                  (std::vector<std::int32_t>{259, 260, 261}));
        EXPECT_EQ(answer({merged}), with_adapter);

        // The merged model as GGUF, and base and adapter at once: the same file.
        for (const std::vector<std::string>& from :
             {std::vector<std::string>{merged}, {"model", "--adapter", adapter}}) {
            const std::string out = run + std::to_string(from.size()) + ".gguf";
            std::vector<std::string> arguments = {"export"};
            arguments.insert(arguments.end(), from.begin(), from.end());
            arguments.insert(arguments.begin() + 2, out);
            result = run_garam(arguments, dir_.path().string());
            ASSERT_EQ(result.status, 0) << result.err;
            EXPECT_EQ(answer({out}), with_adapter);
        }
        result = run_garam({"export", "model", "a.gguf", "--adapter", adapter, "--adapter-only"},
                           dir_.path().string());
        EXPECT_NE(result.status, 0);
        EXPECT_NE(result.err.find("export the whole model"), std::string::npos) << result.err;

        // Adapters of the same new tokens are merged, those of others at the same places are not.
        const std::string both = run + "-both";
        result = run_garam({"merge", "model", adapter, adapter, both, "--weights", "0.5,0.5"},
                           dir_.path().string());
        ASSERT_EQ(result.status, 0) << result.err;
        EXPECT_EQ(answer({both}), with_adapter);
        std::filesystem::copy(dir_ / adapter, dir_ / (run + "-other"));
        std::string tokens = testing::read_file(dir_ / run / "adapter" / "tokenizer.json");
        tokens.replace(tokens.find("<|done|>"), 8, "<|else|>");
        std::ofstream(dir_ / (run + "-other") / "tokenizer.json") << tokens;
        std::filesystem::remove(dir_ / (run + "-other") / "tokenizer_config.json");
        result =
            run_garam({"merge", "model", adapter, run + "-other", "two"}, dir_.path().string());
        EXPECT_NE(result.err.find("merge one of them at a time"), std::string::npos) << result.err;
    }
}

}  // namespace
}  // namespace garam
