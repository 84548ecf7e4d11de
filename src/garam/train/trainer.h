// `garam train`: runs a job from its config to the folder with the result.
#pragma once

#include <vector>

#include "garam/train/engine.h"
#include "garam/train/observer.h"
#include "garam/train/prepared_job.h"

namespace garam {

// Trains, evaluates, logs, saves. Observers of the run folder (metrics.jsonl, TensorBoard) are added by
// itself; `observers` are the caller's (the console). SIGINT or SIGTERM finishes the step, saves a
// checkpoint and ends with the reason "interrupted". `config_yaml` is written to the run folder.
// Throws Error; what was saved before then stays.
EndReport train(const JobConfig& config, const std::string& config_yaml,
                const std::vector<TrainObserver*>& observers);

}  // namespace garam
