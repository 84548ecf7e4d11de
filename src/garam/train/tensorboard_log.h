// TensorBoard scalars of a run, under the tags that Transformers writes: train/loss,
// train/grad_norm, train/learning_rate, train/epoch, train/tokens_per_second, eval/loss,
// eval/runtime.
#pragma once

#include <filesystem>

#include "garam/io/event_file.h"
#include "garam/train/observer.h"

namespace garam {

class TensorboardLog : public TrainObserver {
  public:
    // Starts a new event file in `folder`; a resumed run continues the curves of the files beside
    // it.
    explicit TensorboardLog(const std::filesystem::path& folder) : file_(folder) {}

    void on_step(const StepReport& report) override;
    void on_evaluation(const EvalReport& report) override;

  private:
    EventFile file_;
};

}  // namespace garam
