#include "garam/models/decoder_family.h"

#include <algorithm>

#include "garam/io/peft_keys.h"
#include "garam/models/config_reader.h"

namespace garam {
namespace {

using Biases = DecoderFamily::Biases;
using QkNorm = DecoderFamily::QkNorm;
using Windows = DecoderFamily::Windows;
using Rotary = DecoderFamily::Rotary;

constexpr TensorNames kExaoneNames = {
    .embedding = "transformer.wte",
    .layers = "transformer.h",
    .final_norm = "transformer.ln_f",
    .attention_norm = "ln_1",
    .mlp_norm = "ln_2",
    .q_proj = "attn.attention.q_proj",
    .k_proj = "attn.attention.k_proj",
    .v_proj = "attn.attention.v_proj",
    .o_proj = "attn.attention.out_proj",
    .gate_proj = "mlp.c_fc_0",
    .up_proj = "mlp.c_fc_1",
    .down_proj = "mlp.c_proj",
};
// Norms after attention and MLP instead of before.
constexpr TensorNames kEndNorms = {
    .attention_norm = {},
    .mlp_norm = {},
    .attention_end_norm = "post_attention_layernorm",
    .mlp_end_norm = "post_feedforward_layernorm",
};
constexpr TensorNames kFourNorms = {
    .mlp_norm = "pre_feedforward_layernorm",
    .attention_end_norm = "post_attention_layernorm",
    .mlp_end_norm = "post_feedforward_layernorm",
};
constexpr TensorNames kFused = {
    .qkv_proj = "self_attn.qkv_proj",
    .gate_up_proj = "mlp.gate_up_proj",
};

constexpr DecoderFamily kFamilies[] = {
    {.name = "Llama 2, 3, 3.1, 3.2, SmolLM2 and others of its architecture",
     .model_types = {"llama"},
     .architecture = "LlamaForCausalLM",
     .biases = Biases::by_config},
    {.name = "Mistral",
     .model_types = {"mistral"},
     .architecture = "MistralForCausalLM",
     .window = 4096,
     .windows = Windows::all_layers},
    {.name = "Qwen2, Qwen2.5",
     .model_types = {"qwen2"},
     .architecture = "Qwen2ForCausalLM",
     .window = 4096,
     .biases = Biases::qkv,
     .windows = Windows::upper_layers,
     .use_sliding_window = true},
    {.name = "Qwen3",
     .model_types = {"qwen3"},
     .architecture = "Qwen3ForCausalLM",
     .head_dim = 128,
     .window = 4096,
     .biases = Biases::by_config,
     .qk_norm = QkNorm::heads,
     .windows = Windows::upper_layers,
     .use_sliding_window = true},
    {.name = "EXAONE-3.5, EXAONE-3.0",
     .model_types = {"exaone"},
     .architecture = "ExaoneForCausalLM",
     .tensors = kExaoneNames,
     .num_layers_key = "num_layers",
     .eps_key = "layer_norm_epsilon",
     .activation_key = "activation_function",
     .is_tied = true},
    {.name = "EXAONE-4",
     .model_types = {"exaone4"},
     .architecture = "Exaone4ForCausalLM",
     .tensors = kEndNorms,
     .window = 4096,
     .window_period = 4,
     .qk_norm = QkNorm::heads,
     .windows = Windows::periodic,
     .rotary = Rotary::windowed_layers},
    {.name = "Gemma 2",
     .model_types = {"gemma2"},
     .architecture = "Gemma2ForCausalLM",
     .tensors = kFourNorms,
     .activation_key = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .head_dim = 256,
     .window = 4096,
     .window_period = 2,
     .is_tied = true,
     .biases = Biases::by_config,
     .windows = Windows::periodic,
     .norm_weights_less_one = true,
     .norm_rounds_once = true,
     .scales_embedding = true,
     .query_pre_attn_scalar = true,
     .soft_caps = true},
    {.name = "Gemma 3 (text)",
     .model_types = {"gemma3_text"},
     .architecture = "Gemma3ForCausalLM",
     .tensors = kFourNorms,
     .activation_key = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .rope_theta = 1000000,
     .head_dim = 256,
     .window = 4096,
     .window_period = 6,
     .is_tied = true,
     .biases = Biases::by_config,
     .qk_norm = QkNorm::heads,
     .windows = Windows::periodic,
     .local_rope = true,
     .norm_weights_less_one = true,
     .norm_rounds_once = true,
     .scales_embedding = true,
     .query_pre_attn_scalar = true,
     .soft_caps = true},
    {.name = "Phi-3, Phi-3.5, Phi-4, Phi-4-mini",
     .model_types = {"phi3"},
     .architecture = "Phi3ForCausalLM",
     .tensors = kFused,
     .windows = Windows::all_layers,
     .partial_rotary = true},
    {.name = "SmolLM3",
     .model_types = {"smollm3"},
     .architecture = "SmolLM3ForCausalLM",
     .rope_theta = 2000000,
     .is_tied = true,
     .biases = Biases::by_config,
     .windows = Windows::unturned_layers,
     .use_sliding_window = true,
     .rotary = Rotary::no_rope_layers},
    {.name = "OLMo-2",
     .model_types = {"olmo2"},
     .architecture = "Olmo2ForCausalLM",
     .tensors = kEndNorms,
     .biases = Biases::by_config,
     .qk_norm = QkNorm::width,
     .norm_rounds_once = true},
    {.name = "Granite 3",
     .model_types = {"granite"},
     .architecture = "GraniteForCausalLM",
     .biases = Biases::by_config,
     .multipliers = true},
};

// What a config that no family fits is of, where its keys tell.
std::string kind_of(const ConfigReader& config) {
    for (const char* key :
         {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"}) {
        const Json* value = config.find(key);
        if (value != nullptr && !(value->is_number() && value->number() == 0))
            return ", a mixture of experts,";
    }
    for (const char* key : {"vision_config", "vision_tower", "audio_config"}) {
        if (config.find(key) != nullptr) return ", a model with a vision or audio tower,";
    }
    for (const char* key : {"alibi", "use_alibi", "attn_config"}) {
        const Json* value = config.find(key);
        if (value != nullptr && !(value->is_bool() && !value->boolean()))
            return ", a model with ALiBi,";
    }
    return "";
}

std::string supported() {
    std::string list;
    for (const DecoderFamily& family : kFamilies) {
        for (const std::string_view type : family.model_types) {
            if (!type.empty()) list += (list.empty() ? "" : ", ") + std::string(type);
        }
    }
    return list;
}

// Modules of a layer under both names.
constexpr std::string_view TensorNames::*kLayerModules[] = {
    &TensorNames::attention_norm, &TensorNames::mlp_norm, &TensorNames::q_proj,
    &TensorNames::k_proj,         &TensorNames::v_proj,   &TensorNames::o_proj,
    &TensorNames::gate_proj,      &TensorNames::up_proj,  &TensorNames::down_proj,
};
constexpr std::string_view TensorNames::*kModules[] = {
    &TensorNames::embedding, &TensorNames::final_norm, &TensorNames::head};

std::string renamed(const std::string& path, const TensorNames& from, const TensorNames& to) {
    if (from.layers == to.layers) return path;
    for (const auto member : kModules) {
        if (path == from.*member) return std::string(to.*member);
    }
    const std::string prefix = std::string(from.layers) + ".";
    const std::size_t dot = path.find('.', prefix.size());
    if (!path.starts_with(prefix) || dot == std::string::npos) return path;
    const std::string number = path.substr(prefix.size(), dot - prefix.size());
    for (const auto member : kLayerModules) {
        if (path.compare(dot + 1, std::string::npos, from.*member) == 0)
            return std::string(to.layers) + "." + number + "." + std::string(to.*member);
    }
    return path;
}

}  // namespace

std::span<const DecoderFamily> decoder_families() {
    return kFamilies;
}

const DecoderFamily& family_of(const Json& json, const std::string& source) {
    const ConfigReader config(json, source);
    const std::string type = config.text("model_type", "");
    std::string architecture;
    if (const Json* list = config.find("architectures"); type.empty() && list != nullptr) {
        const Json::Array& names = list->array(config.name("architectures"));
        if (!names.empty()) architecture = names.front().string(config.name("architectures"));
    }
    const std::string kind = kind_of(config);
    if (kind.empty()) {
        for (const DecoderFamily& family : kFamilies) {
            const auto& types = family.model_types;
            if (type.empty() ? family.architecture == architecture
                             : std::find(types.begin(), types.end(), type) != types.end())
                return family;
        }
    }
    throw Error(
        config.name(type.empty() && !architecture.empty() ? "architectures" : "model_type") +
        " \"" + (type.empty() ? architecture : type) + "\"" + kind +
        " is not supported (supported: " + supported() + ")");
}

std::string own_module(const DecoderFamily& family, const std::string& path) {
    return renamed(path, TensorNames{}, family.tensors);
}

std::string common_module(const DecoderFamily& family, const std::string& path) {
    return renamed(path, family.tensors, TensorNames{});
}

std::string own_adapter_key(const DecoderFamily& family, const std::string& key) {
    std::size_t end = key.rfind(".lora_");
    if (end == std::string::npos) end = key.rfind(".base_layer.");
    if (end == std::string::npos) end = key.rfind(".token_adapter.");
    if (end == std::string::npos && (key.ends_with(".bias") || key.ends_with(".weight")))
        end = key.rfind('.');
    if (!key.starts_with(kPeftPrefix) || end == std::string::npos || end < kPeftPrefix.size())
        return key;
    const std::string path = key.substr(kPeftPrefix.size(), end - kPeftPrefix.size());
    return std::string(kPeftPrefix) + own_module(family, path) + key.substr(end);
}

}  // namespace garam
