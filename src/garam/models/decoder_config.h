// What defines a decoder: sizes and switches, read from config.json's keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "garam/core/activation.h"
#include "garam/core/json.h"
#include "garam/io/model_files.h"
#include "garam/models/decoder_family.h"
#include "garam/models/rope_config.h"
#include "garam/ops/logit_scale.h"

namespace garam {

struct DecoderConfig {
    // What a layer's attention has of its own.
    enum class LayerRope : std::uint8_t { none, main, local };
    struct Layer {
        std::int64_t window = 0;  // 0: none
        LayerRope rope = LayerRope::main;
        bool operator==(const Layer&) const = default;
    };

    const DecoderFamily* family = nullptr;
    std::string model_type;
    std::int64_t vocab_size = 0;
    std::int64_t hidden_size = 0;
    std::int64_t intermediate_size = 0;
    std::int64_t num_layers = 0;
    std::int64_t num_heads = 0;
    std::int64_t num_kv_heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t rotary_dim = 0;
    std::int64_t max_positions = 0;
    double rms_norm_eps = 1e-6;
    std::optional<bool> tie_word_embeddings;  // unset: tied if there is no head in the files
    bool qkv_bias = false;
    bool o_bias = false;
    bool mlp_bias = false;
    Activation activation = Activation::silu;
    double embedding_factor = 1;
    double residual_factor = 1;  // of each branch
    double attention_scale = 0;  // of the scores
    double attention_softcap = 0;
    LogitScale logits;
    std::vector<Layer> layers;
    RopeConfig rope;
    std::optional<RopeConfig> local_rope;
    std::vector<std::int32_t> eos_ids;  // eos_token_id: one or several

    std::int64_t q_width() const { return num_heads * head_dim; }
    std::int64_t kv_width() const { return num_kv_heads * head_dim; }
    // Whether the head is the embedding. Throws Error where the files contradict: they hold no head of an
    // untied model, or one of a tied model that differs from the embedding.
    bool ties_head(const ModelFiles& files) const;

    // From config.json in the older (rope_theta, rope_scaling, torch_dtype) or the newer field style
    // (rope_parameters, dtype). Throws Error naming the source and key: for what is missing, out of range
    // or contradictory, and for a model_type, activation, RoPE type or quantisation that garam does not
    // support, with those that it does.
    static DecoderConfig from_json(const Json& config, const std::string& source);
};

}  // namespace garam
