// A GGUF file of architecture `llama` in Hugging Face's words: config.json's keys and tensor names.
#pragma once

#include <vector>

#include "garam/core/json.h"
#include "garam/io/gguf.h"
#include "garam/io/stored_tensor.h"

namespace garam {

struct GgufModel {
    Json config;                        // see model_files.h
    std::vector<StoredTensor> tensors;  // Hugging Face's names; q and k marked as permuted
};

// Throws Error naming the file and the key or tensor: another architecture, an adapter, a split file, a
// missing key, numbers that contradict each other, a tensor or key that Llama models do not have.
GgufModel read_gguf_model(const GgufFile& file);

}  // namespace garam
