// A model as a Hugging Face folder: what full fine-tuning leaves behind.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "garam/core/tensor.h"
#include "garam/io/model_files.h"

namespace garam {

// Writes config.json (of `base`, with the dtype written), model.safetensors and the
// base's generation_config.json into `folder`, which exists. `tensors` are all weights under their Hugging Face
// names, dense and in host memory; without lm_head.weight the model is tied.
void write_model_folder(const std::filesystem::path& folder, const ModelFiles& base, DType dtype,
                        const std::vector<std::pair<std::string, Tensor>>& tensors);

// Copies the base's generation_config.json (sampling defaults, end ids) where it has one.
void copy_generation_config(const ModelFiles& base, const std::filesystem::path& folder);

}  // namespace garam
