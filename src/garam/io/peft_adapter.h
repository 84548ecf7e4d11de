// LoRA adapters in PEFT's folder format: adapter_config.json and adapter_model.safetensors with keys
// "base_model.model.<module path>.lora_A.weight" [r, in] and ".lora_B.weight" [out, r].
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "garam/core/shape.h"
#include "garam/core/tensor.h"

namespace garam {

// The fields of adapter_config.json that garam reads and writes; defaults are PEFT's.
struct LoraSettings {
    std::int64_t r = 8;
    double lora_alpha = 8;
    double lora_dropout = 0;
    bool use_rslora = false;
    // Names or suffixes; {"all-linear"} before resolution. When a file gives a pattern or nothing instead
    // of a list, these are the full paths of the modules that its tensors belong to.
    std::vector<std::string> target_modules;
    std::string base_model_name_or_path;

    // alpha / r, or alpha / sqrt(r) with rsLoRA.
    double scaling() const;
};

struct AdapterTensor {
    std::string name;  // PEFT's key
    Shape shape;
    std::vector<float> values;
};

struct PeftAdapter {
    LoraSettings settings;
    std::vector<AdapterTensor>
        tensors;  // in the file's order; for each module both lora_A and lora_B
};

// Reads a folder, which a hub name in the local cache may stand for; f16 and bf16 tensors are widened. Settings that change the mathematics and are not
// supported (use_dora, rank_pattern, modules_to_save, an init_lora_weights that alters the base, …) are
// refused by name; keys that are not known are taken as harmless, as PEFT adds some with each version.
// "base_layer" tensors that PEFT adds by itself are ignored, all others but lora_A and lora_B refused. Every
// pair has rank r. NaN or infinity is an Error. Throws Error naming file and key.
PeftAdapter read_peft_adapter(const std::filesystem::path& folder);

// Writes both files into an existing folder (each atomically), in PEFT's layout: the keys that PEFT has
// written since its version 0.11, so that older readers know them all, too. `tensors` are f32 host tensors
// under PEFT's keys.
void write_peft_adapter(const std::filesystem::path& folder, const LoraSettings& settings,
                        const std::vector<std::pair<std::string, Tensor>>& tensors);

}  // namespace garam
