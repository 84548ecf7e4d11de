// The other way round: config.json in GGUF's words, for a file that llama.cpp loads.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "garam/core/json.h"
#include "garam/io/gguf_architecture.h"
#include "garam/io/gguf_writer.h"

namespace garam {

struct GgufMetadata {
    const GgufArchitecture* architecture = nullptr;
    GgufKeys keys;  // general.architecture and "<architecture>.…"
    // RoPE's factors, which GGUF keeps as f32 tensors: rope_freqs.weight, rope_factors_long.weight, ….
    std::vector<std::pair<std::string, std::vector<float>>> tensors;
    std::int64_t num_heads = 0;
    std::int64_t num_kv_heads = 0;
    // One sentence each: what llama.cpp is known to compute otherwise.
    std::vector<std::string> notes;
};

// Throws Error naming `source` and the key: a family that is not in the table, a size that is missing,
// a setting that GGUF has no word for.
GgufMetadata gguf_metadata(const Json& config, const std::string& source);

}  // namespace garam
