// A training job on a tiny model and a few chats, in a folder of the test's own.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "garam/core/json.h"
#include "garam/core/philox.h"
#include "garam/train/trainer.h"
#include "testing/temp_dir.h"
#include "testing/tiny_model.h"

namespace garam::testing {

class TinyJob {
  public:
    // Rows of prompt and completion with these lengths in bytes, which are tokens here.
    explicit TinyJob(const std::vector<int>& lengths = {12, 30, 7, 25, 18, 9, 40, 22, 5, 16, 33}) {
        write_tiny_model(dir_ / "model");
        write_rows("train.jsonl", lengths, 1);
        write_rows("validation.jsonl", {20, 11, 35}, 2);
        config.device = "cpu";
        config.model = (dir_ / "model").string();
        config.data.train = {(dir_ / "train.jsonl").string()};
        config.data.validation = {(dir_ / "validation.jsonl").string()};
        config.data.cache_dir = (dir_ / "cache").string();
        config.lora.r = 4;
        config.lora.lora_alpha = 8;
        config.lora.lora_dropout = 0.1;
        config.lora.target_modules = {"all-linear"};
        config.train.output_dir = (dir_ / "run").string();
        config.train.bf16 = false;
        config.train.max_length = 64;
        config.train.per_device_train_batch_size = 2;
        config.train.gradient_accumulation_steps = 2;
        config.train.learning_rate = 1e-2;
        config.train.max_steps = 8;
        config.train.logging_steps = 1;
        config.train.save_steps = 0;
        config.train.report_to = "none";
    }

    EndReport run(const std::vector<TrainObserver*>& observers = {}) {
        return train(config, "", observers);
    }
    std::filesystem::path output() const { return config.train.output_dir; }
    const TempDir& dir() const { return dir_; }

    // Completions are of 26 characters from `first` on.
    void write_rows(const std::string& name, const std::vector<int>& lengths, std::uint64_t seed,
                    char first = 'a') const {
        std::ofstream file(dir_ / name);
        Random random(seed);
        for (const int length : lengths) {
            std::string prompt;
            std::string completion;
            for (int i = 0; i < length; ++i) {
                prompt += static_cast<char>('a' + random.below(26));
                completion += static_cast<char>(first + (i * 7) % 26);
            }
            Json row;
            row.set("prompt", prompt.substr(0, prompt.size() / 2));
            row.set("completion", completion.substr(0, completion.size() - prompt.size() / 2));
            file << row.dump() << '\n';
        }
    }

    JobConfig config;

  private:
    TempDir dir_;
};

// metrics.jsonl without what depends on the clock.
inline std::vector<std::string> timeless_metrics(const std::filesystem::path& output) {
    std::vector<std::string> lines;
    std::ifstream file(output / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
        const Json json = Json::parse(line, "metrics");
        Json kept{Json::Object{}};
        for (const auto& [key, value] : json.object()) {
            if (key != "tokens_per_second" && key != "eval_runtime" && key != "peak_memory_bytes")
                kept.set(key, value);
        }
        lines.push_back(kept.dump());
    }
    return lines;
}

}  // namespace garam::testing
