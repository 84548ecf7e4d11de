// The folder of a run (train.output_dir) and what lies in it:
//   config.yaml      the resolved configuration
//   metrics.jsonl    one object for each logged step and evaluation
//   runs/            TensorBoard events
//   checkpoint-N/    see checkpoint.h
//   best/            the result at the best evaluation so far
//   adapter/         the trained adapter, or model/ after full fine-tuning: the run's result
#pragma once

#include <filesystem>

#include "garam/models/decoder.h"
#include "garam/train/prepared_job.h"

namespace garam {

// Makes output_dir ready for a new run. Throws Error when it holds the results of an earlier one and
// train.overwrite_output_dir is not set; with it, those are removed (nothing else in the folder is).
void begin_run_folder(const std::filesystem::path& output_dir, bool overwrite);

// "adapter" or "model".
std::string result_name(const PreparedJob& job);

// What the run has trained, as PEFT or Transformers loads it: an adapter folder with tokenizer files, or
// after full fine-tuning a model folder in the compute dtype. `folder` exists.
void write_result(const PreparedJob& job, Decoder& model, const std::filesystem::path& folder);

}  // namespace garam
