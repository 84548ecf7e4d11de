// A random Llama of a few thousand weights with a byte-level tokenizer, written as a Hugging Face folder:
// what tests train and generate with when only the checkout is there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "garam/core/json.h"

namespace garam::testing {

struct TinyModel {
    std::int64_t vocab_size = 260;  // 256 bytes, <|endoftext|>, <|im_start|>, <|im_end|>, one spare
    std::int64_t hidden_size = 24;
    std::int64_t intermediate_size = 40;
    std::int64_t num_layers = 2;
    std::int64_t num_heads = 4;
    std::int64_t num_kv_heads = 2;
    std::int64_t head_dim = 8;
    std::int64_t max_positions = 512;
    bool tied = true;
    bool biases = false;
    std::uint64_t seed = 1;
    std::string dtype = "f32";  // of the file: f32, f16 or bf16
    bool chat_template = true;  // ChatML

    Json config() const;
    // Names and values of all weights, in f32.
    std::vector<std::pair<std::string, std::vector<float>>> weights() const;
    std::vector<std::int64_t> shape_of(const std::string& name) const;
};

// Writes config.json, model.safetensors, tokenizer.json and tokenizer_config.json into `folder` (made if
// absent).
void write_tiny_model(const std::filesystem::path& folder, const TinyModel& model = {});

}  // namespace garam::testing
