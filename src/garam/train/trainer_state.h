// What a run must know to go on where it stopped, besides tensors; and the file trainer_state.json
// that holds it together with a list of all files of its checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace garam {

// What decides which numbers a run computes. A resumed run must have the same, else its steps would
// not be the ones that are missing.
struct RunIdentity {
    std::uint64_t seed = 0;
    std::int64_t per_device_train_batch_size = 0;
    std::int64_t gradient_accumulation_steps = 0;
    std::int64_t max_length = 0;
    bool packing = false;
    std::string data_fingerprint;    // of the training data as token ids, in order
    std::string config_fingerprint;  // of the other settings that change the mathematics
    bool operator==(const RunIdentity&) const = default;
};

struct TrainerState {
    std::int64_t global_step = 0;  // optimiser steps done
    double epoch = 0;
    std::int64_t max_steps = 0;  // of the schedule
    std::int64_t num_input_tokens_seen = 0;
    std::int64_t num_target_tokens_seen = 0;
    // Evaluation: the best metric so far and its name, the checkpoint folder that has it (a name, not a
    // path: run folders move), and evaluations since then (early stopping).
    std::optional<double> best_metric;
    std::string metric_for_best_model = "eval_loss";
    bool greater_is_better = false;
    std::string best_model_checkpoint;
    std::int64_t evaluations_without_gain = 0;
    // Sums of the steps since the last logged one, so that the next logged loss is what it would
    // have been.
    std::int64_t unlogged_steps = 0;
    double unlogged_loss_sum = 0;
    std::int64_t unlogged_target_tokens = 0;
    std::int64_t unlogged_tokens = 0;
    // The cut, which decides about bits: train/memory_choice.h.
    std::int64_t merged_micro_batches = 1;
    std::int64_t tile = 0;
    RunIdentity identity;
    bool operator==(const TrainerState&) const = default;
};

// "train.max_length is 512, the checkpoint has 1024", one a difference, in words for a user.
std::vector<std::string> differences(const RunIdentity& now, const RunIdentity& stored);

// One file of a checkpoint.
struct FileRecord {
    std::int64_t bytes = 0;
    std::string checksum;  // 16 hexadecimal digits
    bool operator==(const FileRecord&) const = default;
};

// Size and checksum of a file as it lies there. Throws Error when it cannot be read.
FileRecord record_file(const std::filesystem::path& path);

// trainer_state.json.
struct StateFile {
    TrainerState state;
    std::string masters_file;
    std::string optimizer_file;               // empty: the optimiser has no states
    std::map<std::string, FileRecord> files;  // all others of the folder, by relative path
};

constexpr const char* kStateFileName = "trainer_state.json";

// Numbers must be finite.
void write_state_file(const std::filesystem::path& folder, const StateFile& contents);
// Throws Error naming file and key: absent, not written by garam, of another version, damaged (it
// holds a checksum of itself), or listing a file outside its folder.
StateFile read_state_file(const std::filesystem::path& folder);

}  // namespace garam
