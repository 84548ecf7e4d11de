#include "garam/io/gguf_architecture.h"

#include <array>
#include <charconv>

namespace garam {
namespace {

constexpr std::array<GgufName, 3> kModel = {{
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
}};
constexpr std::array<GgufName, 3> kExaoneModel = {{
    {"token_embd", "transformer.wte"},
    {"output_norm", "transformer.ln_f"},
    {"output", "lm_head"},
}};

constexpr std::array<GgufName, 9> kLlama = {{
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
}};
// With norms of q and k.
constexpr std::array<GgufName, 11> kQwen3 = {{
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
}};
constexpr std::array<GgufName, 9> kExaone = {{
    {"attn_norm", "ln_1"},
    {"attn_q", "attn.attention.q_proj"},
    {"attn_k", "attn.attention.k_proj"},
    {"attn_v", "attn.attention.v_proj"},
    {"attn_output", "attn.attention.out_proj"},
    {"ffn_norm", "ln_2"},
    {"ffn_gate", "mlp.c_fc_0"},
    {"ffn_up", "mlp.c_fc_1"},
    {"ffn_down", "mlp.c_proj"},
}};
// Norms behind attention and MLP, none before them: EXAONE-4, OLMo-2.
constexpr std::array<GgufName, 11> kPostNorm = {{
    {"attn_q", "self_attn.q_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
}};
constexpr std::array<GgufName, 11> kGemma2 = {{
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
}};
constexpr std::array<GgufName, 13> kGemma3 = {{
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
}};
// q, k and v in one matrix, gate and up in another, on both sides.
constexpr std::array<GgufName, 6> kPhi3 = {{
    {"attn_norm", "input_layernorm"},
    {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_up", "mlp.gate_up_proj"},
    {"ffn_down", "mlp.down_proj"},
}};

constexpr std::array<GgufNumber, 2> kGemma2Numbers = {{
    {"attn_logit_softcapping", "attn_logit_softcapping", 50.0},
    {"final_logit_softcapping", "final_logit_softcapping", 30.0},
}};
constexpr std::array<GgufNumber, 4> kGraniteNumbers = {{
    {"attention.scale", "attention_multiplier", 1.0},
    {"embedding_scale", "embedding_multiplier", 1.0},
    {"residual_scale", "residual_multiplier", 1.0},
    {"logit_scale", "logits_scaling", 1.0},
}};

constexpr std::string_view kLayers = "model.layers.";
constexpr std::string_view kGelu = "gelu_pytorch_tanh";

constexpr std::array<GgufArchitecture, 12> kArchitectures = {{
    {.name = "llama",
     .model_type = "llama",
     .class_name = "LlamaForCausalLM",
     .model_names = kModel,
     .layer_prefix = kLayers,
     .layer_names = kLlama,
     .permuted = true,
     .rope_divisors = true},
    {.name = "llama",
     .model_type = "mistral",
     .class_name = "MistralForCausalLM",
     .model_names = kModel,
     .layer_prefix = kLayers,
     .layer_names = kLlama,
     .permuted = true,
     .rope_divisors = true},
    {.name = "qwen2",
     .model_type = "qwen2",
     .class_name = "Qwen2ForCausalLM",
     .model_names = kModel,
     .layer_prefix = kLayers,
     .layer_names = kLlama},
    {.name = "qwen3",
     .model_type = "qwen3",
     .class_name = "Qwen3ForCausalLM",
     .model_names = kModel,
     .layer_prefix = kLayers,
     .layer_names = kQwen3,
     .head_dim = 128},
    {.name = "exaone",
     .model_type = "exaone",
     .class_name = "ExaoneForCausalLM",
     .model_names = kExaoneModel,
     .layer_prefix = "transformer.h.",
     .layer_names = kExaone,
     .rope_divisors = true,
     .layers_key = "num_layers",
     .epsilon_key = "layer_norm_epsilon",
     .activation_key = "activation_function"},
    {.name = "exaone4",
     .model_type = "exaone4",
     .class_name = "Exaone4ForCausalLM",
     .model_names = kModel,
     .layer_prefix = kLayers,
     .layer_names = kPostNorm,
     .rope_divisors = true},
    {.name = "gemma2",
     .model_type = "gemma2",
     .class_name = "Gemma2ForCausalLM",
     .model_names = kModel,
     .layer_prefix = kLayers,
     .layer_names = kGemma2,
     .norms_plus_one = true,
     .activation_key = "hidden_activation",
     .activation = kGelu,
     .head_dim = 256,
     .numbers = kGemma2Numbers},
    {.name = "gemma3",
     .model_type = "gemma3_text",
     .class_name = "Gemma3ForCausalLM",
     .model_names = kModel,
     .layer_prefix = kLayers,
     .layer_names = kGemma3,
     .norms_plus_one = true,
     .activation_key = "hidden_activation",
     .activation = kGelu,
     .head_dim = 256,
     .rope_theta = 1e6},
    {.name = "phi3",
     .model_type = "phi3",
     .class_name = "Phi3ForCausalLM",
     .model_names = kModel,
     .layer_prefix = kLayers,
     .layer_names = kPhi3},
    {.name = "smollm3",
     .model_type = "smollm3",
     .class_name = "SmolLM3ForCausalLM",
     .model_names = kModel,
     .layer_prefix = kLayers,
     .layer_names = kLlama,
     .permuted = true,
     .rope_theta = 2e6},
    {.name = "olmo2",
     .model_type = "olmo2",
     .class_name = "Olmo2ForCausalLM",
     .model_names = kModel,
     .layer_prefix = kLayers,
     .layer_names = kPostNorm},
    {.name = "granite",
     .model_type = "granite",
     .class_name = "GraniteForCausalLM",
     .model_names = kModel,
     .layer_prefix = kLayers,
     .layer_names = kLlama,
     .permuted = true,
     .rope_divisors = true,
     .numbers = kGraniteNumbers},
}};

struct Tail {
    std::string_view module;
    std::string_view part;
};
// Cuts ".weight" or ".bias" off.
std::optional<Tail> split_part(std::string_view name) {
    const std::size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) return std::nullopt;
    const Tail tail{name.substr(0, dot), name.substr(dot + 1)};
    if (tail.part != "weight" && tail.part != "bias") return std::nullopt;
    return tail;
}

// "<layer>.<rest>": the layer, written without leading zeros, is cut off `name`.
std::optional<std::int64_t> take_layer(std::string_view& name) {
    std::int64_t layer = 0;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), layer);
    const auto digits = static_cast<std::size_t>(read.ptr - name.data());
    if (read.ec != std::errc() || layer < 0 || digits >= name.size() || name[digits] != '.' ||
        (digits > 1 && name[0] == '0'))
        return std::nullopt;
    name.remove_prefix(digits + 1);
    return layer;
}

std::optional<GgufTensorName> parse(const GgufArchitecture& architecture, std::string_view name,
                                    std::string_view prefix, std::string_view GgufName::*side) {
    GgufTensorName parsed;
    std::span<const GgufName> names = architecture.model_names;
    if (name.starts_with(prefix)) {
        name.remove_prefix(prefix.size());
        parsed.layer = take_layer(name);
        if (!parsed.layer) return std::nullopt;
        names = architecture.layer_names;
    }
    const auto tail = split_part(name);
    if (!tail || (!parsed.layer && tail->part != "weight")) return std::nullopt;
    for (const GgufName& row : names) {
        if (row.*side != tail->module) continue;
        parsed.module = row.gguf;
        parsed.part = tail->part;
        return parsed;
    }
    return std::nullopt;
}

constexpr std::string_view kBlock = "blk.";

}  // namespace

std::span<const GgufArchitecture> gguf_architectures() {
    return kArchitectures;
}

const GgufArchitecture* find_gguf_architecture(std::string_view name) {
    for (const GgufArchitecture& architecture : kArchitectures) {
        if (architecture.name == name) return &architecture;
    }
    return nullptr;
}

const GgufArchitecture* find_gguf_architecture_of(std::string_view model_type) {
    for (const GgufArchitecture& architecture : kArchitectures) {
        if (architecture.model_type == model_type) return &architecture;
    }
    return nullptr;
}

std::string known_gguf_architectures() {
    std::string names;
    std::string_view last;
    for (const GgufArchitecture& architecture : kArchitectures) {
        if (architecture.name == last) continue;
        last = architecture.name;
        names += (names.empty() ? "" : ", ") + std::string(last);
    }
    return names;
}

std::optional<GgufTensorName> parse_gguf_name(const GgufArchitecture& architecture,
                                              std::string_view name) {
    return parse(architecture, name, kBlock, &GgufName::gguf);
}

std::optional<GgufTensorName> parse_hugging_face_name(const GgufArchitecture& architecture,
                                                      std::string_view name) {
    return parse(architecture, name, architecture.layer_prefix, &GgufName::hugging_face);
}

std::string gguf_name(const GgufTensorName& name) {
    std::string text;
    if (name.layer) text = std::string(kBlock) + std::to_string(*name.layer) + ".";
    return text + std::string(name.module) + "." + std::string(name.part);
}

std::string hugging_face_name(const GgufArchitecture& architecture, const GgufTensorName& name) {
    std::string text;
    if (name.layer)
        text = std::string(architecture.layer_prefix) + std::to_string(*name.layer) + ".";
    for (const GgufName& row : name.layer ? architecture.layer_names : architecture.model_names) {
        if (row.gguf == name.module)
            return text + std::string(row.hugging_face) + "." + std::string(name.part);
    }
    return {};
}

std::int64_t permuted_heads(const GgufArchitecture& architecture, std::string_view module,
                            std::int64_t num_heads, std::int64_t num_kv_heads) {
    if (!architecture.permuted) return 0;
    return module == "attn_q" ? num_heads : module == "attn_k" ? num_kv_heads : 0;
}

std::int64_t permuted_row(std::int64_t row, std::int64_t head) {
    if (head == 0) return row;
    const std::int64_t in_head = row % head;
    return row - in_head + 2 * (in_head % (head / 2)) + in_head / (head / 2);
}

bool has_one_added(const GgufArchitecture& architecture, std::string_view module) {
    return architecture.norms_plus_one && module.ends_with("_norm");
}

}  // namespace garam
