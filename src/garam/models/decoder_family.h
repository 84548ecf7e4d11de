// Families of decoders as data. All are one program (models/decoder.h): a family is a row of this table,
// how it names its tensors and config keys, and which switches its mathematics has.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "garam/core/json.h"

namespace garam {

// Modules of a Hugging Face checkpoint, without ".weight"; those of a layer follow `layers`.N. The names here
// are Llama's, which are those of most families, and of Transformers' own classes where a family comes with
// names of its own.
struct TensorNames {
    std::string_view embedding = "model.embed_tokens";
    std::string_view layers = "model.layers";
    std::string_view final_norm = "model.norm";
    std::string_view head = "lm_head";

    // Norms of a layer; empty: none there. The later two are on a branch's output, before it is added to the
    // residual stream.
    std::string_view attention_norm = "input_layernorm";
    std::string_view mlp_norm = "post_attention_layernorm";
    std::string_view attention_end_norm = {};
    std::string_view mlp_end_norm = {};
    std::string_view q_norm = "self_attn.q_norm";
    std::string_view k_norm = "self_attn.k_norm";

    std::string_view q_proj = "self_attn.q_proj";
    std::string_view k_proj = "self_attn.k_proj";
    std::string_view v_proj = "self_attn.v_proj";
    std::string_view qkv_proj = {};  // one matrix with the rows of q, k and v instead
    std::string_view o_proj = "self_attn.o_proj";
    std::string_view gate_proj = "mlp.gate_proj";
    std::string_view up_proj = "mlp.up_proj";
    std::string_view gate_up_proj = {};  // one matrix with the rows of gate and up instead
    std::string_view down_proj = "mlp.down_proj";
};

struct DecoderFamily {
    // Biases of q, k, v and o: none, all by the key attention_bias, or of q, k and v.
    enum class Biases : std::uint8_t { none, by_config, qkv };
    // RMSNorm of q and k before they are turned: of each head, or of the projections' whole width.
    enum class QkNorm : std::uint8_t { none, heads, width };
    // Which layers see a window: all; or by layer_types, and without that key those from
    // max_window_layers on, all but each `window_period`-th, or those that do not turn q and k.
    enum class Windows : std::uint8_t { none, all_layers, upper_layers, periodic, unturned_layers };
    // Which layers turn q and k: all; those that no_rope_layers marks with 1; of a model with windows
    // those that have one.
    enum class Rotary : std::uint8_t { all_layers, no_rope_layers, windowed_layers };

    std::string_view name;
    std::array<std::string_view, 2> model_types;  // of config.json
    std::string_view architecture;                // Transformers' class
    TensorNames tensors = {};

    std::string_view num_layers_key = "num_hidden_layers";
    std::string_view eps_key = "rms_norm_eps";
    std::string_view activation_key = "hidden_act";
    // What Transformers takes where a key is absent.
    std::string_view activation = "silu";
    double rope_theta = 10000;
    std::int64_t head_dim = 0;  // 0: hidden_size / num_attention_heads
    std::int64_t window = 0;
    std::int64_t window_period = 0;
    bool is_tied = false;  // false: by whether the files hold a head

    Biases biases = Biases::none;
    QkNorm qk_norm = QkNorm::none;
    Windows windows = Windows::none;
    bool use_sliding_window = false;  // a key of that name, absent or false, switches windows off
    Rotary rotary = Rotary::all_layers;
    bool partial_rotary = false;         // partial_rotary_factor of a head turns
    bool local_rope = false;             // layers with a window turn by rope_local_base_freq
    bool norm_weights_less_one = false;  // the norms' factors are 1 + weight
    bool norm_rounds_once = false;       // RmsNormOptions::rounds_once
    bool scales_embedding = false;       // by sqrt(hidden_size)
    bool query_pre_attn_scalar = false;  // scores are scaled by that key's value ^ -0.5
    bool soft_caps = false;              // attn_logit_softcapping, final_logit_softcapping
    bool multipliers = false;  // embedding_, residual_, attention_multiplier, logits_scaling

    bool pre_norms() const { return !tensors.attention_norm.empty(); }
    bool end_norms() const { return !tensors.attention_end_norm.empty(); }
};

std::span<const DecoderFamily> decoder_families();

// By model_type, or where a config has none by its architecture. Throws Error naming the source and what
// the config describes when no family fits, with those that there are.
const DecoderFamily& family_of(const Json& config, const std::string& source);

// Of families with names of their own adapters are found under these and under the names of Transformers'
// own class. Both give the family's own: of a module's path, and of PEFT's key.
std::string own_module(const DecoderFamily& family, const std::string& path);
// The other way.
std::string common_module(const DecoderFamily& family, const std::string& path);
std::string own_adapter_key(const DecoderFamily& family, const std::string& key);

}  // namespace garam
