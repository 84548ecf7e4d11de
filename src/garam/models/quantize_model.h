// A model with its linears in bitsandbytes' 4 bits, as a folder that Transformers loads
// (io/four_bit_checkpoint.h has the layout).
//
// Quantised are the matrices of the layers; what is skipped of them, embeddings, norms, biases and the
// head are written in the type that these matrices have, bf16 where a GGUF has them in blocks.
// Values to quantise are those of the files: f32, bf16, or f16, which is exact in f32. Tensor by
// tensor: memory for one, whatever the model's size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "garam/io/model_files.h"
#include "garam/models/merge.h"
#include "garam/models/sharded_weights.h"
#include "garam/quant/base_quantization.h"

namespace garam {

struct QuantizeModelOptions {
    BaseQuantization base;
    std::int64_t shard_bytes = kShardBytes;
    MergeOptions ids;  // its token ids, for a GGUF's config.json
    // Called before each matrix is quantised with how many are done of how many.
    std::function<void(std::int64_t done, std::int64_t of)> progress;
};

struct QuantizeModelReport {
    std::int64_t tensors = 0;       // of the model, a quantised one counted once
    std::int64_t quantised = 0;     // of these
    std::int64_t bytes_before = 0;  // of all weights
    std::int64_t bytes_after = 0;
};

// Writes config.json, the weights and a copy of generation_config.json into `folder`, which exists.
// Throws Error where the files do not fit their config, the model is in 4 bits already, a skipped
// module is none of the model's, nothing is left to quantise, a value is not finite (in the type that it
// is written in), or the folder cannot be written, naming them.
QuantizeModelReport write_four_bit_model(const ModelFiles& files,
                                         const std::filesystem::path& folder,
                                         const QuantizeModelOptions& options);

}  // namespace garam
