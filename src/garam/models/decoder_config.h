// What defines a decoder: sizes and switches, read from config.json's keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "garam/core/json.h"

namespace garam {

struct RopeConfig {
    enum class Kind : std::uint8_t { standard, linear, llama3, divisors };
    Kind kind = Kind::standard;
    double theta = 10000;
    double factor = 1;                    // linear, llama3
    double low_freq_factor = 1;           // llama3
    double high_freq_factor = 4;          // llama3
    double original_max_position = 8192;  // llama3
    std::vector<double> divisors;         // GGUF: the frequencies are divided by these
};

struct DecoderConfig {
    std::string model_type;
    std::int64_t vocab_size = 0;
    std::int64_t hidden_size = 0;
    std::int64_t intermediate_size = 0;
    std::int64_t num_layers = 0;
    std::int64_t num_heads = 0;
    std::int64_t num_kv_heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t max_positions = 0;
    double rms_norm_eps = 1e-6;
    std::optional<bool> tie_word_embeddings;  // unset: tied if there is no lm_head.weight
    bool attention_bias = false;
    bool mlp_bias = false;
    RopeConfig rope;
    std::vector<std::int32_t> eos_ids;  // eos_token_id: one or several

    // From config.json in the older (rope_theta, rope_scaling, torch_dtype) or the newer field style
    // (rope_parameters, dtype). Throws Error naming the source and key: for what is missing, out of range
    // or contradictory, and for a model_type, activation, RoPE type or quantisation that garam does not
    // support, with those that it does.
    static DecoderConfig from_json(const Json& config, const std::string& source);
};

}  // namespace garam
