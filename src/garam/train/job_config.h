// Everything that one `garam train` is told: the keys of a config file, with their table.
//
// Relative paths are taken from the current directory, as users of Transformers expect, not from
// the folder of the config file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "garam/core/config_table.h"
#include "garam/data/data_config.h"
#include "garam/io/peft_adapter.h"
#include "garam/quant/base_quantization.h"
#include "garam/train/eval_config.h"
#include "garam/train/train_config.h"

namespace garam {

// The base in 4 bits: the keys and defaults of Transformers' BitsAndBytesConfig.
struct FourBitKeys {
    bool load_in_4bit = false;
    std::string quant_type = "fp4";
    bool use_double_quant = false;
    std::string compute_dtype = "auto";
    std::int64_t block_size = 64;
    std::vector<std::string> skip_modules;
};

struct JobConfig {
    std::string model;                  // folder of a Hugging Face model, or a GGUF file
    std::string adapter;                // folder of an adapter to go on with; empty: a new one
    std::string device = "auto";        // auto, cpu, cuda, cuda:N
    int threads = 0;                    // 0: all processors
    std::string memory_limit = "auto";  // train/memory_table.h
    std::string memory_host_limit = "auto";
    FourBitKeys four_bit;
    DataConfig data;
    // PEFT leaves target_modules to a table by model type, which has q_proj and v_proj for the
    // Llama family. base_model_name_or_path is what the adapter will name as its base; empty: from
    // the model.
    LoraSettings lora;
    double loraplus_lr_ratio = 1;
    std::string init_lora_weights = "true";
    int loftq_bits = 4;
    int loftq_iter = 1;
    TrainConfig train;
    EvalConfig eval;

    JobConfig() { lora.target_modules = {"q_proj", "v_proj"}; }
};

// The table of all keys. It points into `config`, which must outlive it and stay where it is.
ConfigTable describe(JobConfig& config);

// What quantises the base while it is loaded; empty: nothing does.
std::optional<BaseQuantization> base_quantization(const JobConfig& config);

// Throws Error for a block size or a name that cannot be, naming the key.
void validate(const FourBitKeys& keys);

// What no single key can say: required keys and keys that contradict each other. Throws Error
// naming the keys and what to change.
void validate(const JobConfig& config);

}  // namespace garam
