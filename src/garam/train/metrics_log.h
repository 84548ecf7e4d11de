// metrics.jsonl of a run folder: one JSON object a line for each logged step and each evaluation,
// as in Transformers' log history:
//
//   {"step": 10, "epoch": 0.5, "loss": …, "grad_norm": …, "learning_rate": …, "num_target_tokens":
//   …,
//    "tokens_per_second": …, "peak_memory_bytes": …}
//   {"step": 10, "epoch": 0.5, "eval_loss": …, "eval_num_target_tokens": …, "eval_runtime": …}
//   with eval.metrics also "eval_accuracy": …, … and "eval_confusion_matrix": {"labels": […], …}
//
// Each line reaches the system in one write when it happens, so a killed process loses at most a
// line that it was writing. A run that resumes first drops all lines beyond the step it resumes
// from and whatever is no whole object, so that its file ends as that of a run that never stopped,
// but for the times. A non-finite number is written as null.
#pragma once

#include <cstdint>
#include <filesystem>

#include "garam/train/observer.h"

namespace garam {

class MetricsLog : public TrainObserver {
  public:
    // `resumed_step` = 0 starts anew. Throws Error naming the file when it cannot be written.
    MetricsLog(const std::filesystem::path& path, std::int64_t resumed_step);
    ~MetricsLog() override;
    MetricsLog(const MetricsLog&) = delete;
    MetricsLog& operator=(const MetricsLog&) = delete;

    void on_step(const StepReport& report) override;
    void on_evaluation(const EvalReport& report) override;

  private:
    void append(std::string line);

    std::filesystem::path path_;
    int file_ = -1;
};

}  // namespace garam
