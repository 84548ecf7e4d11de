#include "garam/io/gguf_llama.h"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "garam/core/error.h"

namespace garam {
namespace {

struct Name {
    std::string_view gguf;
    std::string_view hugging_face;
};
constexpr std::array<Name, 9> kLayerNames = {{
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
constexpr std::array<Name, 3> kModelNames = {{
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
}};
constexpr std::string_view kRopeDivisors = "rope_freqs.weight";

// The double whose shortest decimal is that of the float: a file's f32 1e-5 reads 1e-05 in a config, not
// 9.999999747378752e-06. Rounded to float both are the same.
double shortest(double of_float) {
    std::array<char, 32> text{};
    const auto written =
        std::to_chars(text.data(), text.data() + text.size(), static_cast<float>(of_float));
    double value = of_float;
    std::from_chars(text.data(), written.ptr, value);
    return value;
}

// "blk.<layer>.<rest>": the layer, written without leading zeros; nothing when it is not so.
std::optional<std::pair<std::int64_t, std::string_view>> layer_of(std::string_view name) {
    constexpr std::string_view kPrefix = "blk.";
    if (!name.starts_with(kPrefix)) return std::nullopt;
    name.remove_prefix(kPrefix.size());
    std::int64_t layer = 0;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), layer);
    const auto digits = static_cast<std::size_t>(read.ptr - name.data());
    if (read.ec != std::errc() || layer < 0 || digits >= name.size() || name[digits] != '.' ||
        (digits > 1 && name[0] == '0'))
        return std::nullopt;
    return std::pair{layer, name.substr(digits + 1)};
}

class LlamaReader {
  public:
    explicit LlamaReader(const GgufFile& file) : file_(file) {}

    GgufModel read() {
        refuse_what_is_no_llama_model();
        read_sizes();
        for (const StoredTensor& tensor : file_.tensors())
            add(tensor);
        write_config();
        return std::move(model_);
    }

  private:
    [[noreturn]] void fail(const std::string& what) const {
        throw Error(file_.path().string() + ": " + what);
    }

    const Json& need(std::string_view key) const {
        const Json* value = file_.find(key);
        if (value == nullptr) fail("key " + std::string(key) + " is missing");
        return *value;
    }
    std::string at(std::string_view key) const {
        return file_.path().string() + ": key " + std::string(key);
    }
    std::int64_t positive(std::string_view key, const Json& value) const {
        const std::int64_t number = value.integer(at(key));
        if (number <= 0) fail("key " + std::string(key) + " must be positive");
        return number;
    }
    std::int64_t size(std::string_view key) const { return positive(key, need(key)); }
    std::int64_t size(std::string_view key, std::int64_t fallback) const {
        const Json* value = file_.find(key);
        return value == nullptr ? fallback : positive(key, *value);
    }
    double real(std::string_view key, double fallback) const {
        const Json* value = file_.find(key);
        if (value == nullptr) return fallback;
        const double number = value->number(at(key));
        if (!std::isfinite(number) || number <= 0)
            fail("key " + std::string(key) + " must be a positive number");
        return shortest(number);
    }

    void refuse_what_is_no_llama_model() const {
        if (const Json* type = file_.find("general.type");
            type != nullptr && type->string(at("general.type")) != "model")
            fail("holds a GGUF " + type->string() + ", not a model");
        const std::string& architecture =
            need("general.architecture").string(at("general.architecture"));
        if (architecture != "llama")
            fail("architecture " + architecture +
                 " is not supported from GGUF; supported is llama (use the model's Hugging Face "
                 "folder for others)");
        if (size("split.count", 1) != 1)
            fail("is one part of a split GGUF; join the parts first (llama-gguf-split --merge)");
        if (const Json* experts = file_.find("llama.expert_count");
            experts != nullptr && experts->integer(at("llama.expert_count")) != 0)
            fail("mixture-of-experts models are not supported (key llama.expert_count)");
    }

    void read_sizes() {
        hidden_ = size("llama.embedding_length");
        layers_ = size("llama.block_count");
        heads_ = size("llama.attention.head_count");
        kv_heads_ = size("llama.attention.head_count_kv", heads_);
        if (heads_ % kv_heads_ != 0)
            fail("llama.attention.head_count " + std::to_string(heads_) +
                 " is no multiple of llama.attention.head_count_kv " + std::to_string(kv_heads_));
        if (file_.find("llama.attention.key_length") == nullptr && hidden_ % heads_ != 0)
            fail("llama.embedding_length " + std::to_string(hidden_) +
                 " is no multiple of llama.attention.head_count " + std::to_string(heads_));
        head_dim_ = size("llama.attention.key_length", hidden_ / heads_);
        for (const std::string_view key :
             {"llama.attention.value_length", "llama.rope.dimension_count"}) {
            if (const std::int64_t value = size(key, head_dim_); value != head_dim_)
                fail("key " + std::string(key) + " is " + std::to_string(value) +
                     "; only models where it equals the head size " + std::to_string(head_dim_) +
                     " are supported");
        }
    }

    void add(const StoredTensor& stored) {
        StoredTensor tensor = stored;
        if (stored.name == kRopeDivisors) return read_divisors(stored);
        for (const Name& name : kModelNames) {
            if (stored.name != name.gguf) continue;
            tensor.name = name.hugging_face;
            has_head_ |= tensor.name == "lm_head.weight";
            if (tensor.name == "model.embed_tokens.weight" && tensor.shape.rank() == 2)
                embedding_rows_ = tensor.shape[0];
            model_.tensors.push_back(std::move(tensor));
            return;
        }
        const auto layer = layer_of(stored.name);
        const std::size_t dot = layer ? layer->second.rfind('.') : std::string_view::npos;
        const std::string_view module = layer ? layer->second.substr(0, dot) : "";
        const std::string_view part =
            dot == std::string_view::npos ? "" : layer->second.substr(dot + 1);
        for (const Name& name : kLayerNames) {
            if (module != name.gguf || (part != "weight" && part != "bias")) continue;
            if (layer->first >= layers_)
                fail("tensor " + stored.name + " lies beyond llama.block_count " +
                     std::to_string(layers_));
            tensor.name = "model.layers." + std::to_string(layer->first) + "." +
                          std::string(name.hugging_face) + "." + std::string(part);
            if (module == "attn_q") mark_permuted(tensor, heads_);
            if (module == "attn_k") mark_permuted(tensor, kv_heads_);
            attention_bias_ |= part == "bias" && module.starts_with("attn_");
            mlp_bias_ |= part == "bias" && module.starts_with("ffn_");
            model_.tensors.push_back(std::move(tensor));
            return;
        }
        fail("tensor " + stored.name +
             " is not one of a Llama model; it cannot be left out safely");
    }

    void mark_permuted(StoredTensor& tensor, std::int64_t heads) const {
        const bool divides =
            tensor.shape.rank() > 0 && tensor.shape[0] == heads * head_dim_ && head_dim_ % 2 == 0;
        if (!divides)
            fail("tensor " + tensor.name + " has shape " + tensor.shape.to_string() + ", its " +
                 std::to_string(heads) + " heads of " + std::to_string(head_dim_) + " need " +
                 std::to_string(heads * head_dim_) + " rows");
        if (tensor.shape.rank() == 1 && block_elements(tensor.type) != 1)
            fail("tensor " + tensor.name + ": a bias of type " + std::string(name_of(tensor.type)) +
                 " is not supported");
        tensor.permuted_heads = heads;
    }

    void read_divisors(const StoredTensor& tensor) {
        if (tensor.type != StoredType::f32 || !(tensor.shape == Shape{head_dim_ / 2}))
            fail("tensor rope_freqs.weight must be f32 [" + std::to_string(head_dim_ / 2) +
                 "], not " + std::string(name_of(tensor.type)) + " " + tensor.shape.to_string());
        std::vector<float> values(static_cast<std::size_t>(tensor.shape.elements()));
        try {
            read_tensor(tensor, values.data());
        } catch (const Error& error) {
            fail(error.what());
        }
        for (const float value : values) {
            if (value <= 0) fail("tensor rope_freqs.weight holds a divisor that is not positive");
            divisors_.emplace_back(static_cast<double>(value));
        }
    }

    // null, linear, or the divisors of rope_freqs.weight.
    Json rope_scaling() const {
        std::string type = "none";
        if (const Json* value = file_.find("llama.rope.scaling.type"))
            type = value->string(at("llama.rope.scaling.type"));
        // Files from before the scaling keys had one key for linear scaling.
        const double factor =
            real("llama.rope.scaling.factor", real("llama.rope.scale_linear", 1.0));
        const bool linear = type == "linear" || (type == "none" && factor != 1.0 &&
                                                 file_.find("llama.rope.scaling.type") == nullptr);
        if (type != "none" && type != "linear")
            fail("RoPE scaling " + type +
                 " is not supported (key llama.rope.scaling.type); supported are none, linear and "
                 "llama3's rope_freqs.weight");
        if (linear && !divisors_.empty())
            fail("has both linear RoPE scaling and rope_freqs.weight, which is not supported");
        if (linear)
            return Json(Json::Object{{"rope_type", Json("linear")}, {"factor", Json(factor)}});
        if (!divisors_.empty())
            return Json(Json::Object{{"rope_type", Json("garam_divisors")},
                                     {"garam_rope_divisors", Json(divisors_)}});
        return Json();
    }

    void write_config() {
        Json& config = model_.config;
        config.set("architectures", Json(Json::Array{Json("LlamaForCausalLM")}));
        config.set("model_type", "llama");
        config.set("hidden_size", hidden_);
        config.set("intermediate_size", size("llama.feed_forward_length"));
        config.set("num_hidden_layers", layers_);
        config.set("num_attention_heads", heads_);
        config.set("num_key_value_heads", kv_heads_);
        config.set("head_dim", head_dim_);
        if (file_.find("llama.vocab_size") == nullptr && embedding_rows_ == 0)
            fail("key llama.vocab_size is missing, and tensor token_embd.weight too");
        config.set("vocab_size", size("llama.vocab_size", embedding_rows_));
        config.set("max_position_embeddings", size("llama.context_length"));
        need("llama.attention.layer_norm_rms_epsilon");
        config.set("rms_norm_eps", real("llama.attention.layer_norm_rms_epsilon", 0));
        config.set("rope_theta", real("llama.rope.freq_base", 10000.0));  // ggml's default
        config.set("rope_scaling", rope_scaling());
        config.set("hidden_act", "silu");
        config.set("attention_bias", attention_bias_);
        config.set("mlp_bias", mlp_bias_);
        config.set("tie_word_embeddings", !has_head_);
        for (const auto& [key, name] :
             {std::pair{"tokenizer.ggml.bos_token_id", "bos_token_id"},
              std::pair{"tokenizer.ggml.eos_token_id", "eos_token_id"},
              std::pair{"tokenizer.ggml.padding_token_id", "pad_token_id"}}) {
            if (const Json* id = file_.find(key)) config.set(name, id->integer(at(key)));
        }
    }

    const GgufFile& file_;
    GgufModel model_;
    std::int64_t hidden_ = 0;
    std::int64_t layers_ = 0;
    std::int64_t heads_ = 0;
    std::int64_t kv_heads_ = 0;
    std::int64_t head_dim_ = 0;
    std::int64_t embedding_rows_ = 0;
    bool has_head_ = false;
    bool attention_bias_ = false;
    bool mlp_bias_ = false;
    Json::Array divisors_;
};

}  // namespace

GgufModel read_gguf_model(const GgufFile& file) {
    return LlamaReader(file).read();
}

}  // namespace garam
