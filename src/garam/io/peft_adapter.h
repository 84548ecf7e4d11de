// LoRA adapters in PEFT's folder format: adapter_config.json and adapter_model.safetensors with keys
// "base_model.model.<module path>.lora_A.weight" [r, in] and ".lora_B.weight" [out, r], with DoRA
// ".lora_magnitude_vector" [out]; of the token embedding
// ".lora_embedding_A" [r, vocab] and ".lora_embedding_B" [hidden, r]; modules_to_save under their own names;
// trained biases under
// ".base_layer.bias" of modules with an adapter, ".bias" of others.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "garam/core/shape.h"
#include "garam/core/tensor.h"
#include "garam/io/lora_settings.h"
#include "garam/quant/base_quantization.h"

namespace garam {

struct AdapterTensor {
    std::string name;  // PEFT's key
    Shape shape;
    std::vector<float> values;
};

struct PeftAdapter {
    LoraSettings settings;
    std::vector<AdapterTensor>
        tensors;  // in the file's order; for each module both lora_A and lora_B, and biases
    // Embedding and head, which PEFT saves beside an adapter whose base has got more tokens: instead of the
    // base's (models/vocabulary_size.h).
    std::vector<AdapterTensor> embeddings;
    // How the base was quantised while it was loaded for training, so that its weights on the disk are not those
    // that training saw. Kept in the tensors file's metadata, which PEFT passes over.
    std::optional<BaseQuantization> base_quantization;
};

// Reads a folder, which a hub name in the local cache may stand for; f16 and bf16 tensors are
// widened. Settings that change the mathematics and are not supported (use_qalora, modules_to_save,
// an init_lora_weights that alters the base, …) are refused by name; keys that are not known are
// taken as harmless, as PEFT adds some with each version. Biases are read where `bias` says that
// they were trained; other "base_layer" tensors, which PEFT adds by itself, are ignored but for
// those of the embedding and the head, and all others but lora_A, lora_B and DoRA's magnitudes
// refused. Every pair has the rank of its module. Where target_modules are no list of names, or
// other fields choose among them, the settings name the modules that the tensors belong to. NaN or
// infinity is an Error. Throws Error naming file and key.
PeftAdapter read_peft_adapter(const std::filesystem::path& folder);

// Writes both files into an existing folder (each atomically), in PEFT's layout: the keys that PEFT has
// written since its version 0.11, so that older readers know them all, too. `tensors` are f32 host tensors
// under PEFT's keys.
void write_peft_adapter(const std::filesystem::path& folder, const LoraSettings& settings,
                        const std::vector<std::pair<std::string, Tensor>>& tensors,
                        const std::optional<BaseQuantization>& base_quantization = {});

}  // namespace garam
