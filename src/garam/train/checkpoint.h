// Checkpoints of a training run: what they hold, how they are written, read and thrown away.
//
// A checkpoint is a folder "checkpoint-<global step>" in the run's output folder:
//   <model files>           what the caller's `write_model` puts there: a PEFT adapter, or a model
//   masters.safetensors     fp32 masters of all trained parameters by their names, and of PiSSA what they began
//                           with; absent when a
//   model
//                           file holds exactly these tensors (a PEFT adapter does)
//   optimizer.safetensors   states of the optimiser by their names; absent when it has none
//   products.json           the tuned products that the run takes (core/product_table.h); absent when none
//   trainer_state.json      TrainerState, and for each file of the folder its size and checksum
//
// Promises:
// - It is complete or not there: written under a temporary name, synced, renamed. A kill or a full
// disk
//   leaves at most a folder ".checkpoint-….tmp-…", which nobody reads and the next save removes.
// - It is read complete or refused, with one line that names the file: every file must have the
// size and
//   checksum that it was written with, trainer_state.json itself included; the tensors must be
//   exactly those that the run trains, in name, shape and dtype. Nothing of the run has changed
//   when it is refused.
// - It never holds a weight or state that is NaN or infinite: refused on writing and on reading.
// - Masters, states, counts and the cut of the data are bit-equal after reading: N steps, a save, a
//   resume and N steps are 2N steps.
// Tensors are f32, or u8 (codes of an optimiser's states), dense, in host memory. The checksums
// find damage, not intent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "garam/core/tensor.h"
#include "garam/train/trainer_state.h"

namespace garam {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

struct CheckpointContents {
    TrainerState state;
    NamedTensors masters;
    NamedTensors optimizer;
    // Writes the model files into the folder given.
    std::function<void(const std::filesystem::path& folder)> write_model;
    // A safetensors file that `write_model` leaves in the folder and that holds `masters` exactly,
    // under their names ("adapter_model.safetensors"); empty: masters.safetensors is written.
    std::string masters_file;
};

// Writes "checkpoint-<state.global_step>" into `output_dir` (made if absent) and returns its path.
// An older one of that name is replaced. Throws Error: a value that is not finite (tensor and index
// named; nothing is written), or the disk (file and reason).
std::filesystem::path save_checkpoint(const std::filesystem::path& output_dir,
                                      const CheckpointContents& contents);

class Checkpoint {
  public:
    // Reads trainer_state.json and checks every file against it. Throws Error naming the file and
    // what is wrong with it.
    static Checkpoint open(const std::filesystem::path& folder);

    const std::filesystem::path& folder() const { return folder_; }
    const TrainerState& state() const { return state_; }
    // Whether `file` was written with it.
    bool holds(const std::string& file) const { return files_.contains(file); }
    // Copies the stored values into the tensors given: all of them, or none and an Error that names
    // the tensor that is missing, unknown, of another shape or not finite.
    void restore(const NamedTensors& masters, const NamedTensors& optimizer) const;

  private:
    std::filesystem::path folder_;
    TrainerState state_;
    std::string masters_file_;
    std::string optimizer_file_;  // empty: no states
    std::set<std::string> files_;
};

// The newest checkpoint of an output folder whose files are all there in their sizes; open() checks
// the rest. Folders "checkpoint-<n>" beyond it that were passed over are told in `passed_over`,
// each with the reason, so that nothing is skipped without a word. Temporary folders are not looked
// at.
struct LastCheckpoint {
    std::optional<std::filesystem::path> folder;
    std::vector<std::string> passed_over;
};
LastCheckpoint find_last_checkpoint(const std::filesystem::path& output_dir);

// Removes what killed saves and removals left. Those of a save that goes on are locked and stay.
void remove_checkpoint_leftovers(const std::filesystem::path& output_dir);

// Removes the oldest checkpoints until `save_total_limit` are left, as Transformers does: the
// newest and the best one (a folder name, may be empty) always stay, the best one counts among
// those left; 0 = no limit. Folders that garam did not write are neither counted nor touched. Each
// is renamed to a temporary name first, so that a kill leaves no half checkpoint. Leftovers of
// killed saves and removals go too.
void rotate_checkpoints(const std::filesystem::path& output_dir, std::int64_t save_total_limit,
                        const std::string& best_model_checkpoint);

}  // namespace garam
