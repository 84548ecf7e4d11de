// The folder of a run (train.output_dir) and what lies in it:
//   config.yaml      the resolved configuration
//   products.json    the tuned products that the run takes, if any
//   metrics.jsonl    one object for each logged step and evaluation
//   runs/            TensorBoard events
//   checkpoint-N/    see checkpoint.h
//   best/            the result at the best evaluation so far
//   adapter/         the trained adapter, or model/ after full fine-tuning: the run's result
#pragma once

#include <filesystem>
#include <vector>

#include "garam/models/decoder.h"
#include "garam/train/prepared_job.h"

namespace garam {

// output_dir in the hands of one process: it is made, and locked against a second run, for as long as
// this lives (file systems that cannot lock a folder go without). A folder that is still empty at the
// end is removed if it was made here. Throws Error when it cannot be made, or another run has it.
class RunFolder {
  public:
    explicit RunFolder(const std::filesystem::path& output_dir);
    ~RunFolder();
    RunFolder(const RunFolder&) = delete;
    RunFolder& operator=(const RunFolder&) = delete;

    // Throws Error when the results of an earlier run lie here and train.overwrite_output_dir is not
    // set, or when one of `inputs` (files and folders that this run reads) is among them.
    void check_free(bool overwrite, const std::vector<std::filesystem::path>& inputs) const;
    // Removes the results of an earlier run, and nothing else.
    void clear() const;

  private:
    std::vector<std::filesystem::path> results() const;

    std::filesystem::path path_;
    bool made_ = false;
    int lock_ = -1;
};

// "adapter" or "model".
std::string result_name(const PreparedJob& job);

// What the run has trained, as PEFT or Transformers loads it onto the base: an adapter folder with tokenizer files
// (of PiSSA an ordinary one, models/pissa.h), or
// after full fine-tuning a model folder in the compute dtype. `folder` exists.
void write_result(const PreparedJob& job, Decoder& model, const std::filesystem::path& folder);

}  // namespace garam
