#include "garam/io/gguf_model.h"

#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "garam/core/error.h"
#include "garam/io/gguf_architecture.h"

namespace garam {
namespace {

constexpr std::string_view kRopeDivisors = "rope_freqs.weight";
constexpr std::string_view kLongFactors = "rope_factors_long.weight";
constexpr std::string_view kShortFactors = "rope_factors_short.weight";

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

class ModelReader {
  public:
    explicit ModelReader(const GgufFile& file) : file_(file) {}

    GgufModel read() {
        find_architecture();
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

    // "<architecture>.<name>"
    std::string own(std::string_view name) const {
        return std::string(architecture_->name) + "." + std::string(name);
    }

    void find_architecture() {
        if (const Json* type = file_.find("general.type");
            type != nullptr && type->string(at("general.type")) != "model")
            fail("holds a GGUF " + type->string() + ", not a model");
        const std::string& name = need("general.architecture").string(at("general.architecture"));
        architecture_ = find_gguf_architecture(name);
        if (architecture_ == nullptr)
            fail("architecture " + name + " is not supported from GGUF; supported are " +
                 known_gguf_architectures() + " (use the model's Hugging Face folder for others)");
        if (const Json* experts = file_.find(own("expert_count"));
            experts != nullptr && experts->integer(at(own("expert_count"))) != 0)
            fail("mixture-of-experts models are not supported (key " + own("expert_count") + ")");
        // Mistral is Llama with a window; files that do not tell the window are read as Llama.
        if (name == "llama" && window() > 0) architecture_ = find_gguf_architecture_of("mistral");
    }

    // 0: none.
    std::int64_t window() const {
        const std::string key = own("attention.sliding_window");
        const Json* value = file_.find(key);
        const std::int64_t tokens = value == nullptr ? 0 : value->integer(at(key));
        if (tokens < 0) fail("key " + key + " must not be negative");
        return tokens;
    }

    void read_sizes() {
        hidden_ = size(own("embedding_length"));
        layers_ = size(own("block_count"));
        // Lists of them are made: their number is more than the file's word.
        if (layers_ > static_cast<std::int64_t>(file_.tensors().size()))
            fail("key " + own("block_count") + " is " + std::to_string(layers_) +
                 ", and there are " + std::to_string(file_.tensors().size()) + " tensors");
        heads_ = size(own("attention.head_count"));
        kv_heads_ = size(own("attention.head_count_kv"), heads_);
        if (heads_ % kv_heads_ != 0)
            fail(own("attention.head_count ") + std::to_string(heads_) + " is no multiple of " +
                 own("attention.head_count_kv ") + std::to_string(kv_heads_));
        if (file_.find(own("attention.key_length")) == nullptr && hidden_ % heads_ != 0)
            fail(own("embedding_length ") + std::to_string(hidden_) + " is no multiple of " +
                 own("attention.head_count ") + std::to_string(heads_));
        head_dim_ = size(own("attention.key_length"), hidden_ / heads_);
        must_be_a_width("embedding_length", hidden_);
        must_be_a_width("attention.head_count", heads_);
        must_be_a_width("attention.key_length", head_dim_);
        must_be_head_size("attention.value_length");
        rotated_ = size(own("rope.dimension_count"), head_dim_);
        if (architecture_->model_type != "phi3") must_be_head_size("rope.dimension_count");
        if (rotated_ > head_dim_)
            fail("key " + own("rope.dimension_count") + " is " + std::to_string(rotated_) +
                 ", beyond the head size " + std::to_string(head_dim_));
    }

    // Two of them are multiplied.
    void must_be_a_width(std::string_view name, std::int64_t value) const {
        constexpr std::int64_t kWidest = 1 << 24;
        if (value > kWidest)
            fail("key " + own(name) + " is " + std::to_string(value) + ", more than " +
                 std::to_string(kWidest));
    }

    void must_be_head_size(std::string_view name) const {
        const std::string key = own(name);
        if (const std::int64_t value = size(key, head_dim_); value != head_dim_)
            fail("key " + key + " is " + std::to_string(value) +
                 "; only models where it equals the head size " + std::to_string(head_dim_) +
                 " are supported");
    }

    void add(const StoredTensor& stored) {
        if (stored.name == kRopeDivisors) return read_factors(stored, divisors_);
        if (architecture_->model_type == "phi3") {
            if (stored.name == kLongFactors) return read_factors(stored, long_factors_);
            if (stored.name == kShortFactors) return read_factors(stored, short_factors_);
        }
        const auto name = parse_gguf_name(*architecture_, stored.name);
        if (!name)
            fail("tensor " + stored.name + " is not one of a " + std::string(architecture_->name) +
                 " model; it cannot be left out safely");
        if (name->layer && *name->layer >= layers_)
            fail("tensor " + stored.name + " lies beyond " + own("block_count ") +
                 std::to_string(layers_));
        StoredTensor tensor = stored;
        tensor.name = hugging_face_name(*architecture_, *name);
        mark_permuted(tensor, permuted_heads(*architecture_, name->module, heads_, kv_heads_));
        tensor.one_added = has_one_added(*architecture_, name->module);
        has_head_ |= name->module == "output";
        if (name->module == "token_embd" && tensor.shape.rank() == 2)
            embedding_rows_ = tensor.shape[0];
        attention_bias_ |= name->part == "bias" && name->module.starts_with("attn_");
        mlp_bias_ |= name->part == "bias" && name->module.starts_with("ffn_");
        model_.tensors.push_back(std::move(tensor));
    }

    void mark_permuted(StoredTensor& tensor, std::int64_t heads) const {
        if (heads == 0) return;
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

    void read_factors(const StoredTensor& tensor, Json::Array& factors) {
        if (tensor.type != StoredType::f32 || !(tensor.shape == Shape{rotated_ / 2}))
            fail("tensor " + tensor.name + " must be f32 [" + std::to_string(rotated_ / 2) +
                 "], not " + std::string(name_of(tensor.type)) + " " + tensor.shape.to_string());
        std::vector<float> values(static_cast<std::size_t>(tensor.shape.elements()));
        try {
            read_tensor(tensor, values.data());
        } catch (const Error& error) {
            fail(error.what());
        }
        for (const float value : values) {
            if (value <= 0) fail("tensor " + tensor.name + " holds a divisor that is not positive");
            factors.emplace_back(&factors == &divisors_ ? static_cast<double>(value)
                                                        : shortest(static_cast<double>(value)));
        }
    }

    // null, linear, yarn, longrope, or the divisors of rope_freqs.weight.
    Json rope_scaling() {
        std::string type = "none";
        const std::string type_key = own("rope.scaling.type");
        if (const Json* value = file_.find(type_key)) type = value->string(at(type_key));
        // Files from before the scaling keys had one key for linear scaling.
        const double factor = real(own("rope.scaling.factor"), real(own("rope.scale_linear"), 1.0));
        if (type == "none" && factor != 1.0 && file_.find(type_key) == nullptr) type = "linear";
        if (!long_factors_.empty() || !short_factors_.empty()) return long_rope();
        if (type != "none" && type != "linear" && type != "yarn")
            fail("RoPE scaling " + type + " is not supported (key " + type_key +
                 "); supported are none, linear, yarn, llama3's rope_freqs.weight and phi3's "
                 "longrope");
        if (type != "none" && !divisors_.empty())
            fail("has both " + type +
                 " RoPE scaling and rope_freqs.weight, which is not supported");
        if (type == "linear")
            return Json(Json::Object{{"rope_type", Json("linear")}, {"factor", Json(factor)}});
        if (type == "yarn") return yarn(factor);
        if (!divisors_.empty())
            return Json(Json::Object{{"rope_type", Json("garam_divisors")},
                                     {"garam_rope_divisors", Json(divisors_)}});
        return Json();
    }

    Json yarn(double factor) const {
        for (const char* name : {"rope.scaling.yarn_log_multiplier", "rope.scaling.yarn_ext_factor",
                                 "rope.scaling.yarn_attn_factor", "rope.scaling.attn_factor"}) {
            if (file_.find(own(name)) != nullptr)
                fail("key " + own(name) + " is not supported with yarn");
        }
        Json scaling;
        scaling.set("rope_type", "yarn");
        scaling.set("factor", factor);
        scaling.set("original_max_position_embeddings",
                    size(own("rope.scaling.original_context_length")));
        for (const auto& [name, key] : {std::pair{"rope.scaling.yarn_beta_fast", "beta_fast"},
                                        std::pair{"rope.scaling.yarn_beta_slow", "beta_slow"}}) {
            if (file_.find(own(name)) != nullptr) scaling.set(key, real(own(name), 0));
        }
        return scaling;
    }

    Json long_rope() {
        if (long_factors_.empty() || short_factors_.empty())
            fail("has only one of the tensors " + std::string(kLongFactors) + " and " +
                 std::string(kShortFactors));
        const std::int64_t original = size(own("rope.scaling.original_context_length"));
        model_.config.set("original_max_position_embeddings", original);
        Json scaling;
        scaling.set("rope_type", "longrope");
        scaling.set("long_factor", long_factors_);
        scaling.set("short_factor", short_factors_);
        // What Transformers computes where the config is silent.
        const double ratio =
            static_cast<double>(size(own("context_length"))) / static_cast<double>(original);
        const double usual =
            ratio <= 1 ? 1.0
                       : std::sqrt(1 + std::log(ratio) / std::log(static_cast<double>(original)));
        const double stated = real(own("rope.scaling.attn_factor"), usual);
        if (std::abs(stated - usual) > 1e-6 * usual) scaling.set("attention_factor", stated);
        return scaling;
    }

    void write_config() {
        Json& config = model_.config;
        const GgufArchitecture& family = *architecture_;
        config.set("architectures", Json(Json::Array{Json(family.class_name)}));
        config.set("model_type", family.model_type);
        config.set("hidden_size", hidden_);
        config.set("intermediate_size", size(own("feed_forward_length")));
        config.set(family.layers_key, layers_);
        config.set("num_attention_heads", heads_);
        config.set("num_key_value_heads", kv_heads_);
        config.set("head_dim", head_dim_);
        if (file_.find(own("vocab_size")) == nullptr && embedding_rows_ == 0)
            fail("key " + own("vocab_size") + " is missing, and tensor token_embd.weight too");
        config.set("vocab_size", size(own("vocab_size"), embedding_rows_));
        config.set("max_position_embeddings", size(own("context_length")));
        need(own("attention.layer_norm_rms_epsilon"));
        config.set(family.epsilon_key, real(own("attention.layer_norm_rms_epsilon"), 0));
        config.set("rope_theta", real(own("rope.freq_base"), 10000.0));  // ggml's default
        if (rotated_ != head_dim_)
            config.set("partial_rotary_factor",
                       static_cast<double>(rotated_) / static_cast<double>(head_dim_));
        config.set("rope_scaling", rope_scaling());
        config.set(family.activation_key, family.activation);
        // Qwen2 has biases on q, k and v without saying so.
        const bool is_llama = family.name == "llama";
        if (is_llama || (attention_bias_ && family.model_type != "qwen2"))
            config.set("attention_bias", attention_bias_);
        if (is_llama || mlp_bias_) config.set("mlp_bias", mlp_bias_);
        config.set("tie_word_embeddings", !has_head_);
        for (const GgufNumber& number : family.numbers)
            config.set(number.hugging_face, real(own(number.gguf), number.otherwise));
        write_window();
        if (family.model_type == "smollm3") write_layers_without_rope();
        if (family.norms_plus_one) write_query_scale();
        for (const auto& [key, name] :
             {std::pair{"tokenizer.ggml.bos_token_id", "bos_token_id"},
              std::pair{"tokenizer.ggml.eos_token_id", "eos_token_id"},
              std::pair{"tokenizer.ggml.padding_token_id", "pad_token_id"}}) {
            if (const Json* id = file_.find(key)) config.set(name, id->integer(at(key)));
        }
    }

    // Which layers attend within the window only.
    void write_window() {
        Json& config = model_.config;
        const std::string_view type = architecture_->model_type;
        const std::int64_t tokens = window();
        if (type == "mistral" || type == "phi3")
            config.set("sliding_window", tokens == 0 ? Json() : Json(tokens));
        if (type == "gemma2")  // llama.cpp's default, as Transformers'
            config.set("sliding_window", tokens == 0 ? std::int64_t{4096} : tokens);
        if (type == "gemma3_text") {
            config.set("sliding_window", tokens == 0 ? std::int64_t{4096} : tokens);
            config.set("sliding_window_pattern", size(own("attention.sliding_window_pattern"), 6));
            config.set("rope_local_base_freq", real(own("rope.freq_base_swa"), 10000.0));
        }
        if (type == "exaone4") {
            config.set("sliding_window", tokens == 0 ? Json() : Json(tokens));
            if (tokens > 0) config.set("layer_types", layer_types());
        }
    }

    // As llama.cpp has it: none in each fourth layer.
    void write_layers_without_rope() {
        Json::Array has_rope;
        for (std::int64_t layer = 0; layer < layers_; ++layer)
            has_rope.emplace_back(std::int64_t{(layer + 1) % 4 != 0});
        model_.config.set("no_rope_layer_interval", std::int64_t{4});
        model_.config.set("no_rope_layers", std::move(has_rope));
    }

    // From a list of bools, or every how many layers one attends to all; 4 is llama.cpp's default.
    Json layer_types() const {
        const std::string key = own("attention.sliding_window_pattern");
        const Json* pattern = file_.find(key);
        Json::Array types;
        for (std::int64_t layer = 0; layer < layers_; ++layer) {
            bool slides = (layer + 1) % 4 != 0;
            if (pattern != nullptr && pattern->is_array()) {
                const Json::Array& list = pattern->array();
                if (static_cast<std::int64_t>(list.size()) != layers_)
                    fail("key " + key + " has " + std::to_string(list.size()) + " entries for " +
                         std::to_string(layers_) + " layers");
                slides = list[static_cast<std::size_t>(layer)].boolean(at(key));
            } else if (pattern != nullptr) {
                slides = (layer + 1) % size(key) != 0;
            }
            types.emplace_back(slides ? "sliding_attention" : "full_attention");
        }
        return Json(std::move(types));
    }

    // Gemma scales q by query_pre_attn_scalar^-0.5: the head size but in the 27B models, as llama.cpp
    // has it, unless the file tells.
    void write_query_scale() {
        const bool is_27b = layers_ == (architecture_->model_type == "gemma2" ? 46 : 62);
        double scalar = static_cast<double>(is_27b ? hidden_ / heads_ : head_dim_);
        const std::string key = own("attention.scale");
        if (file_.find(key) != nullptr) {
            const double scale = real(key, 1);
            scalar = 1 / (scale * scale);
            if (std::abs(scalar - std::round(scalar)) < 1e-5 * scalar) scalar = std::round(scalar);
        }
        model_.config.set("query_pre_attn_scalar", scalar == std::round(scalar)
                                                       ? Json(static_cast<std::int64_t>(scalar))
                                                       : Json(scalar));
    }

    const GgufFile& file_;
    const GgufArchitecture* architecture_ = nullptr;
    GgufModel model_;
    std::int64_t hidden_ = 0;
    std::int64_t layers_ = 0;
    std::int64_t heads_ = 0;
    std::int64_t kv_heads_ = 0;
    std::int64_t head_dim_ = 0;
    std::int64_t rotated_ = 0;  // of a head, by RoPE
    std::int64_t embedding_rows_ = 0;
    bool has_head_ = false;
    bool attention_bias_ = false;
    bool mlp_bias_ = false;
    Json::Array divisors_;
    Json::Array long_factors_;
    Json::Array short_factors_;
};

}  // namespace

GgufModel read_gguf_model(const GgufFile& file) {
    return ModelReader(file).read();
}

}  // namespace garam
