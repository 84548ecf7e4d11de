// A GGUF model file in Hugging Face's words: config.json's keys and tensor names, by the table of
// io/gguf_architecture.h.
#pragma once

#include <vector>

#include "garam/core/json.h"
#include "garam/io/gguf.h"
#include "garam/io/stored_tensor.h"

namespace garam {

struct GgufModel {
    Json config;                        // see model_files.h
    std::vector<StoredTensor> tensors;  // Hugging Face's names; what reading undoes is marked
};

// Throws Error naming the file and the key or tensor: another architecture, an adapter, a missing key,
// numbers that contradict each other, a tensor that the family does not have.
GgufModel read_gguf_model(const GgufFile& file);

}  // namespace garam
