#include "garam/models/decoder_config.h"

#include <algorithm>

#include "garam/core/error.h"

namespace garam {
namespace {

// Reads one config.json with errors that name file and key.
class Reader {
  public:
    Reader(const Json& config, std::string source) : config_(config), source_(std::move(source)) {}

    // nullptr when absent or null.
    const Json* find(const char* key) const {
        const Json* value = config_.find(key);
        return value == nullptr || value->is_null() ? nullptr : value;
    }
    std::string name(const std::string& key) const { return source_ + ": " + key; }

    std::int64_t size(const char* key) const {
        const Json* value = find(key);
        if (value == nullptr) throw Error(name(key) + " is missing");
        return checked(key, value->integer(name(key)));
    }
    std::int64_t size(const char* key, std::int64_t otherwise) const {
        const Json* value = find(key);
        return value == nullptr ? otherwise : checked(key, value->integer(name(key)));
    }
    double number(const char* key, double otherwise) const {
        const Json* value = find(key);
        return value == nullptr ? otherwise : value->number(name(key));
    }
    bool boolean(const char* key, bool otherwise) const {
        const Json* value = find(key);
        return value == nullptr ? otherwise : value->boolean(name(key));
    }
    std::string text(const char* key, const std::string& otherwise) const {
        const Json* value = find(key);
        return value == nullptr ? otherwise : value->string(name(key));
    }

  private:
    std::int64_t checked(const char* key, std::int64_t value) const {
        constexpr std::int64_t kLargest = std::int64_t{1} << 31;
        if (value < 1 || value > kLargest)
            throw Error(name(key) + " is " + std::to_string(value) + ", not between 1 and 2^31");
        return value;
    }
    const Json& config_;
    std::string source_;
};

double positive(double value, const std::string& what) {
    if (!(value > 0) || value > 1e30)
        throw Error(what + " must be a positive number, not " + std::to_string(value));
    return value;
}

RopeConfig rope_from(const Reader& config, std::int64_t head_dim) {
    RopeConfig rope;
    const Json* parameters = config.find("rope_parameters");
    const char* const group = parameters != nullptr ? "rope_parameters" : "rope_scaling";
    const Json* scaling = parameters != nullptr ? parameters : config.find("rope_scaling");
    rope.theta = config.number("rope_theta", 10000);
    if (scaling == nullptr) {
        positive(rope.theta, config.name("rope_theta"));
        return rope;
    }
    const std::string where = config.name(group);
    scaling->object(where);
    const Reader inner(*scaling, where);
    rope.theta = positive(inner.number("rope_theta", rope.theta), inner.name("rope_theta"));
    const std::string type = inner.text("rope_type", inner.text("type", "default"));
    const auto required = [&](const char* key) {
        if (inner.find(key) == nullptr) throw Error(inner.name(key) + " is missing");
        return positive(inner.number(key, 0), inner.name(key));
    };
    if (type == "default") return rope;
    if (type == "linear") {
        rope.kind = RopeConfig::Kind::linear;
        rope.factor = required("factor");
    } else if (type == "llama3") {
        rope.kind = RopeConfig::Kind::llama3;
        rope.factor = required("factor");
        rope.low_freq_factor = required("low_freq_factor");
        rope.high_freq_factor = required("high_freq_factor");
        rope.original_max_position = required("original_max_position_embeddings");
        if (rope.high_freq_factor <= rope.low_freq_factor)
            throw Error(where + ": high_freq_factor must be above low_freq_factor");
    } else if (type == "garam_divisors") {
        rope.kind = RopeConfig::Kind::divisors;
        for (const Json& value :
             scaling->at("garam_rope_divisors", where).array(inner.name("garam_rope_divisors")))
            rope.divisors.push_back(positive(value.number(where), where + ": rope divisor"));
        if (static_cast<std::int64_t>(rope.divisors.size()) != head_dim / 2)
            throw Error(where + ": " + std::to_string(rope.divisors.size()) +
                        " rope divisors for a head of " + std::to_string(head_dim));
    } else {
        throw Error(where + ": rope type \"" + type +
                    "\" is not supported (supported: default, linear, llama3)");
    }
    return rope;
}

}  // namespace

DecoderConfig DecoderConfig::from_json(const Json& json, const std::string& source) {
    json.object(source);
    const Reader reader(json, source);
    DecoderConfig config;
    config.model_type = reader.text("model_type", "");
    if (config.model_type != "llama")
        throw Error(reader.name("model_type") + " \"" + config.model_type +
                    "\" is not supported (supported: llama)");
    if (reader.find("quantization_config") != nullptr)
        throw Error(reader.name("quantization_config") +
                    ": quantised checkpoints are not supported (supported: f32, f16 and bf16 "
                    "safetensors, and GGUF in F32, F16, BF16, Q8_0, Q4_0, Q4_1)");
    const std::string activation = reader.text("hidden_act", "silu");
    if (activation != "silu" && activation != "swish")
        throw Error(reader.name("hidden_act") + " \"" + activation +
                    "\" is not supported (supported: silu)");

    config.vocab_size = reader.size("vocab_size");
    config.hidden_size = reader.size("hidden_size");
    config.intermediate_size = reader.size("intermediate_size");
    config.num_layers = reader.size("num_hidden_layers");
    // The layers are listed before their tensors are looked for.
    constexpr std::int64_t kMostLayers = 1 << 16;
    if (config.num_layers > kMostLayers)
        throw Error(reader.name("num_hidden_layers") + " is " + std::to_string(config.num_layers) +
                    ", more than " + std::to_string(kMostLayers));
    config.num_heads = reader.size("num_attention_heads");
    config.num_kv_heads = reader.size("num_key_value_heads", config.num_heads);
    if (reader.find("head_dim") == nullptr && config.hidden_size % config.num_heads != 0)
        throw Error(reader.name("hidden_size") + " " + std::to_string(config.hidden_size) +
                    " is no multiple of num_attention_heads " + std::to_string(config.num_heads) +
                    ", and head_dim is not given");
    config.head_dim =
        reader.size("head_dim", std::max<std::int64_t>(config.hidden_size / config.num_heads, 1));
    if (config.head_dim % 2 != 0 || config.head_dim > 1024)
        throw Error(reader.name("head_dim") + " is " + std::to_string(config.head_dim) +
                    ", not an even number up to 1024");
    if (config.num_heads % config.num_kv_heads != 0)
        throw Error(reader.name("num_attention_heads") + " " + std::to_string(config.num_heads) +
                    " is no multiple of num_key_value_heads " +
                    std::to_string(config.num_kv_heads));
    config.max_positions = reader.size("max_position_embeddings", 2048);
    config.rms_norm_eps =
        positive(reader.number("rms_norm_eps", 1e-6), reader.name("rms_norm_eps"));
    if (reader.find("tie_word_embeddings") != nullptr)
        config.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
    config.attention_bias = reader.boolean("attention_bias", false);
    config.mlp_bias = reader.boolean("mlp_bias", false);
    if (reader.number("attention_dropout", 0) != 0)
        throw Error(reader.name("attention_dropout") + " is not supported: set it to 0");
    config.rope = rope_from(reader, config.head_dim);

    if (const Json* eos = reader.find("eos_token_id"); eos != nullptr) {
        const auto add = [&](const Json& id) {
            const std::int64_t value = id.integer(reader.name("eos_token_id"));
            if (value < 0 || value >= config.vocab_size)
                throw Error(reader.name("eos_token_id") + " " + std::to_string(value) +
                            " is outside the vocabulary of " + std::to_string(config.vocab_size));
            config.eos_ids.push_back(static_cast<std::int32_t>(value));
        };
        if (eos->is_array()) {
            for (const Json& id : eos->array())
                add(id);
        } else {
            add(*eos);
        }
    }
    return config;
}

}  // namespace garam
