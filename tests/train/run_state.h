// The tensors of a small run for checkpoint tests, in host memory.
#pragma once

#include <cmath>
#include <fstream>
#include <vector>

#include "garam/io/safetensors.h"
#include "garam/train/checkpoint.h"

namespace garam::testing {

struct RunTensors {
    std::vector<std::vector<float>> memory;
    NamedTensors masters;
    NamedTensors optimizer;

    explicit RunTensors(float seed = 0, std::int64_t columns = 5) {
        for (const char* name :
             {"base_model.model.q_proj.lora_A.weight", "base_model.model.q_proj.lora_B.weight"}) {
            masters.emplace_back(name, make({3, columns}, seed));
            for (const char* state : {".exp_avg", ".exp_avg_sq"})
                optimizer.emplace_back(name + std::string(state), make({3, columns}, seed));
        }
    }
    RunTensors(const RunTensors&) = delete;
    RunTensors& operator=(const RunTensors&) = delete;

    // Everything a function of the step, so that a mixture of two steps shows.
    void set(float seed) {
        for (auto& values : memory)
            fill(values, seed);
    }

  private:
    static void fill(std::vector<float>& values, float seed) {
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = seed + 0.37f * std::sin(static_cast<float>(i) * 1.7f);
    }
    Tensor make(const Shape& shape, float seed) {
        auto& values = memory.emplace_back(static_cast<std::size_t>(shape.elements()));
        fill(values, seed);
        return Tensor(values.data(), DType::f32, shape, DeviceKind::cpu);
    }
};

inline TrainerState state_at(std::int64_t step) {
    TrainerState state;
    state.global_step = step;
    state.epoch = static_cast<double>(step) / 7.0;
    state.max_steps = 100;
    state.num_input_tokens_seen = 1000 * step;
    state.num_target_tokens_seen = 300 * step;
    state.best_metric = 0.1 + 1.0 / 3.0;
    state.best_model_checkpoint = "checkpoint-2";
    state.evaluations_without_gain = 1;
    state.unlogged_steps = 2;
    state.unlogged_loss_sum = 2.0 / 3.0;
    state.unlogged_target_tokens = 77;
    state.unlogged_tokens = 99;
    state.identity.seed = 0xfedcba9876543210ULL;
    state.identity.per_device_train_batch_size = 4;
    state.identity.gradient_accumulation_steps = 2;
    state.identity.max_length = 512;
    state.identity.packing = true;
    state.identity.data_fingerprint = "d1";
    state.identity.config_fingerprint = "c1";
    return state;
}

// A checkpoint whose masters lie in a model file, as an adapter's do.
inline CheckpointContents contents_of(const RunTensors& run, std::int64_t step) {
    CheckpointContents contents;
    contents.state = state_at(step);
    contents.masters = run.masters;
    contents.optimizer = run.optimizer;
    contents.masters_file = "adapter_model.safetensors";
    contents.write_model = [&run](const std::filesystem::path& folder) {
        write_safetensors(folder / "adapter_model.safetensors", run.masters);
        std::ofstream(folder / "adapter_config.json") << "{}\n";
    };
    return contents;
}

}  // namespace garam::testing
