// LoRA adapters as llama.cpp keeps them, in a GGUF of type adapter: tensors
// "<module>.weight.lora_a" [r, in] and ".lora_b" [out, r] under the base's GGUF names, scaled by
// adapter.lora.alpha / r.
#pragma once

#include <filesystem>

#include "garam/io/model_files.h"
#include "garam/io/peft_adapter.h"
#include "garam/io/stored_tensor.h"

namespace garam {

// Writes the file (atomically), with tensors of `type`: f32, f16 or bf16. The base tells the family and
// the heads, by which rows of lora_b are permuted where those of the weight are. llama.cpp knows no
// rsLoRA and no alpha of a module: alpha is scaling * r, and lora_b of a module of another alpha takes
// the difference, rounded once. Biases are refused. Throws Error naming `source` and the tensor for a family or module
// that GGUF has no name for, and for rows that the base's heads do not divide.
void write_gguf_adapter(const std::filesystem::path& path, const PeftAdapter& adapter,
                        const std::string& source, const ModelFiles& base,
                        StoredType type = StoredType::f32);

// Reads such a file as PEFT's keys for that base. Throws Error naming the file and the key or tensor:
// another kind of file or family, a pair that is incomplete or of two ranks, a
// tensor of another name. Where pairs differ, r is the commonest rank.
PeftAdapter read_gguf_adapter(const std::filesystem::path& path, const ModelFiles& base);

// A PEFT folder, or such a file: what ends in .gguf.
PeftAdapter read_adapter(const std::filesystem::path& path, const ModelFiles& base);

}  // namespace garam
