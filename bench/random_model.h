// Model folders of named shapes with random weights, for benchmarks: no download, no file of ours.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace garam::bench {

struct ModelShape {
    std::string name;
    std::int64_t hidden, layers, heads, kv_heads, head_dim, ffn, vocab, positions;
    double rope_theta;
    bool tied;
    std::int64_t linear_weights() const;  // of all blocks
    std::int64_t head_weights() const { return vocab * hidden; }
};

// exaone-2.4b, llama-8b, smollm2-135m, tiny. Throws Error naming these.
const ModelShape& model_shape(const std::string& name);

// Writes config.json and model.safetensors (bf16, normal with deviation 0.02, a block of 64 MiB used again
// and again from varying offsets) into `folder`, unless they are there.
void make_random_model(const ModelShape& shape, const std::filesystem::path& folder);

// The same without values, for plans: the file has a hole where they would be.
void make_empty_model(const ModelShape& shape, const std::filesystem::path& folder);

}  // namespace garam::bench
