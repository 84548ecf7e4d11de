#include "garam/models/decoder_config.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "garam/io/four_bit_checkpoint.h"

namespace garam {
namespace {

// Fills a config key by key; what comes later relies on what came before.
class Builder {
  public:
    Builder(const Json& json, const std::string& source) : reader_(json, source) {
        config_.family = &family_of(json, source);
        static_cast<void>(four_bit_config(json, source));  // refuses every other quantisation
    }

    DecoderConfig build() {
        refuse_what_is_not_supported();
        read_sizes();
        read_switches();
        read_scales();
        read_layers();
        read_end_ids();
        return std::move(config_);
    }

  private:
    const DecoderFamily& family() const { return *config_.family; }

    // The family's own key, else that of Transformers' newer configs.
    std::string_view either(std::string_view own, std::string_view common) const {
        return reader_.find(own) != nullptr || reader_.find(common) == nullptr ? own : common;
    }

    void refuse_what_is_not_supported() const {
        for (const char* key :
             {"attention_dropout", "embd_pdrop", "resid_pdrop", "embed_dropout"}) {
            if (reader_.number(key, 0) != 0)
                throw Error(reader_.name(key) + " is not supported: set it to 0");
        }
        const char* const key = "use_bidirectional_attention";
        if (reader_.boolean(key, false)) throw Error(reader_.name(key) + " is not supported");
    }

    void read_sizes() {
        DecoderConfig& c = config_;
        c.model_type = reader_.text("model_type", family().model_types.front());
        c.vocab_size = reader_.size("vocab_size");
        c.hidden_size = reader_.size("hidden_size");
        c.intermediate_size = reader_.size("intermediate_size");
        const std::string_view layers = either(family().num_layers_key, "num_hidden_layers");
        c.num_layers = reader_.size(layers);
        // The layers are listed before their tensors are looked for.
        constexpr std::int64_t kMostLayers = 1 << 16;
        if (c.num_layers > kMostLayers)
            throw Error(reader_.name(layers) + " is " + std::to_string(c.num_layers) +
                        ", more than " + std::to_string(kMostLayers));
        c.num_heads = reader_.size("num_attention_heads");
        c.num_kv_heads = reader_.size("num_key_value_heads", c.num_heads);
        if (c.num_heads % c.num_kv_heads != 0)
            throw Error(reader_.name("num_attention_heads") + " " + std::to_string(c.num_heads) +
                        " is no multiple of num_key_value_heads " + std::to_string(c.num_kv_heads));
        read_head_dim();
        c.max_positions = reader_.size("max_position_embeddings", 2048);
        // The tables of positions are made whole; the longest contexts published are of 10 million.
        constexpr std::int64_t kMostPositions = std::int64_t{1} << 24;
        if (c.max_positions > kMostPositions)
            throw Error(reader_.name("max_position_embeddings") + " is " +
                        std::to_string(c.max_positions) + ", more than " +
                        std::to_string(kMostPositions));
        const std::string_view eps = either(family().eps_key, "rms_norm_eps");
        c.rms_norm_eps = reader_.positive(eps, 1e-6);
    }

    void read_head_dim() {
        DecoderConfig& c = config_;
        const bool stated = reader_.find("head_dim") != nullptr || family().head_dim > 0;
        if (!stated && c.hidden_size % c.num_heads != 0)
            throw Error(reader_.name("hidden_size") + " " + std::to_string(c.hidden_size) +
                        " is no multiple of num_attention_heads " + std::to_string(c.num_heads) +
                        ", and head_dim is not given");
        const std::int64_t otherwise = family().head_dim > 0
                                           ? family().head_dim
                                           : std::max<std::int64_t>(c.hidden_size / c.num_heads, 1);
        c.head_dim = reader_.size("head_dim", otherwise);
        if (c.head_dim % 2 != 0 || c.head_dim > 1024)
            throw Error(reader_.name("head_dim") + " is " + std::to_string(c.head_dim) +
                        ", not an even number up to 1024");
        c.rotary_dim = c.head_dim;
        const char* const key = "partial_rotary_factor";
        double part = reader_.number(key, 1);
        if (const Json* parameters = reader_.find("rope_parameters"))
            part = ConfigReader(*parameters, reader_.name("rope_parameters")).number(key, part);
        if (part == 1) return;
        if (!family().partial_rotary)
            throw Error(reader_.name(key) + " is not supported for model_type " + c.model_type);
        const bool is_part = part > 0 && part < 1;
        c.rotary_dim =
            is_part ? static_cast<std::int64_t>(static_cast<double>(c.head_dim) * part) : 0;
        if (c.rotary_dim < 2 || c.rotary_dim % 2 != 0)
            throw Error(reader_.name(key) + " " + std::to_string(part) + " of a head of " +
                        std::to_string(c.head_dim) + " is no even number of entries");
    }

    void read_switches() {
        DecoderConfig& c = config_;
        if (reader_.find("tie_word_embeddings") != nullptr) {
            c.tie_word_embeddings = reader_.boolean("tie_word_embeddings", false);
        } else if (family().is_tied) {
            c.tie_word_embeddings = true;
        }
        c.qkv_bias = family().biases == DecoderFamily::Biases::qkv;
        if (family().biases == DecoderFamily::Biases::by_config)
            c.qkv_bias = c.o_bias = reader_.boolean("attention_bias", false);
        c.mlp_bias = reader_.boolean("mlp_bias", false);

        const std::string_view key = either(family().activation_key, "hidden_act");
        const std::string activation = reader_.text(key, family().activation);
        if (activation == "silu" || activation == "swish") {
            c.activation = Activation::silu;
        } else if (activation == "gelu_pytorch_tanh") {
            c.activation = Activation::gelu_tanh;
        } else {
            throw Error(reader_.name(key) + " \"" + activation +
                        "\" is not supported (supported: silu, gelu_pytorch_tanh)");
        }
    }

    void read_scales() {
        DecoderConfig& c = config_;
        c.attention_scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
        if (family().query_pre_attn_scalar)
            c.attention_scale = 1 / std::sqrt(reader_.positive("query_pre_attn_scalar", 256));
        if (family().scales_embedding)
            c.embedding_factor = std::sqrt(static_cast<double>(c.hidden_size));
        if (family().soft_caps) {
            if (reader_.find("attn_logit_softcapping") != nullptr)
                c.attention_softcap = reader_.positive("attn_logit_softcapping");
            if (reader_.find("final_logit_softcapping") != nullptr)
                c.logits.softcap = static_cast<float>(reader_.positive("final_logit_softcapping"));
        }
        if (family().multipliers) {
            c.embedding_factor = reader_.positive("embedding_multiplier", 1);
            c.residual_factor = reader_.positive("residual_multiplier", 1);
            c.attention_scale = reader_.positive("attention_multiplier", 1);
            c.logits.factor = static_cast<float>(1 / reader_.positive("logits_scaling", 1));
        }
    }

    void read_layers() {
        DecoderConfig& c = config_;
        c.layers.resize(static_cast<std::size_t>(c.num_layers));
        RopeConfigs ropes = read_rope_configs(reader_, family().rope_theta, c.rotary_dim,
                                              c.max_positions, family().local_rope);
        c.rope = std::move(ropes.rope);
        c.local_rope = std::move(ropes.local);
        if (family().rotary == DecoderFamily::Rotary::no_rope_layers) set_no_rope_layers();
        set_windows();
        if (family().local_rope) {
            for (DecoderConfig::Layer& layer : c.layers) {
                if (layer.window > 0) layer.rope = DecoderConfig::LayerRope::local;
            }
        }
        if (family().rotary == DecoderFamily::Rotary::windowed_layers && window() > 0) {
            for (DecoderConfig::Layer& layer : c.layers) {
                if (layer.window == 0) layer.rope = DecoderConfig::LayerRope::none;
            }
        }
    }

    // 0: the model has none.
    std::int64_t window() const {
        if (family().windows == DecoderFamily::Windows::none) return 0;
        if (family().use_sliding_window && !reader_.boolean("use_sliding_window", false)) return 0;
        if (reader_.find("sliding_window") != nullptr) return reader_.size("sliding_window");
        return reader_.is_null("sliding_window") ? 0 : family().window;
    }

    void set_windows() {
        using Windows = DecoderFamily::Windows;
        const std::int64_t width = window();
        if (width == 0) return;
        std::vector<DecoderConfig::Layer>& layers = config_.layers;
        const auto set_where = [&](auto is_windowed) {
            for (std::size_t l = 0; l < layers.size(); ++l)
                if (is_windowed(l)) layers[l].window = width;
        };
        if (family().windows == Windows::all_layers)
            return set_where([](std::size_t) { return true; });
        if (reader_.find("layer_types") != nullptr) {
            const std::vector<bool> sliding = sliding_layers();
            return set_where([&](std::size_t l) { return sliding[l]; });
        }
        if (family().windows == Windows::unturned_layers)
            return set_where(
                [&](std::size_t l) { return layers[l].rope == DecoderConfig::LayerRope::none; });
        if (family().windows == Windows::upper_layers) {
            const double first = reader_.number("max_window_layers", 28);
            return set_where([&](std::size_t l) { return static_cast<double>(l) >= first; });
        }
        const char* const key = "sliding_window_pattern";
        const Json* pattern = reader_.find(key);
        if (pattern != nullptr && pattern->is_string()) {  // such as LLLG; the last layer is global
            const std::string& letters = pattern->string();
            if (letters.empty() || letters.find_first_not_of("LG") != std::string::npos)
                throw Error(reader_.name(key) + " must be made of L and G, not \"" + letters +
                            "\"");
            return set_where([&](std::size_t l) {
                return l + 1 != layers.size() && letters[l % letters.size()] == 'L';
            });
        }
        const std::int64_t period =
            reader_.size(key, reader_.size("_sliding_window_pattern", family().window_period));
        set_where([&](std::size_t l) { return (static_cast<std::int64_t>(l) + 1) % period != 0; });
    }

    std::vector<bool> sliding_layers() const {
        const char* const key = "layer_types";
        const Json::Array& types = reader_.find(key)->array(reader_.name(key));
        check_length(key, types.size());
        std::vector<bool> sliding;
        for (const Json& json : types) {
            const std::string& type = json.string(reader_.name(key));
            if (type != "sliding_attention" && type != "full_attention")
                throw Error(reader_.name(key) + " \"" + type +
                            "\" is not supported (supported: full_attention, sliding_attention)");
            sliding.push_back(type == "sliding_attention");
        }
        return sliding;
    }

    void set_no_rope_layers() {
        std::vector<DecoderConfig::Layer>& layers = config_.layers;
        const char* const key = "no_rope_layers";
        std::vector<bool> turns(layers.size());
        if (const Json* marks = reader_.find(key)) {
            const Json::Array& list = marks->array(reader_.name(key));
            check_length(key, list.size());
            for (std::size_t l = 0; l < list.size(); ++l)
                turns[l] = list[l].integer(reader_.name(key)) != 0;
        } else {
            const std::int64_t interval = reader_.size("no_rope_layer_interval", 4);
            for (std::size_t l = 0; l < turns.size(); ++l)
                turns[l] = (static_cast<std::int64_t>(l) + 1) % interval != 0;
        }
        for (std::size_t l = 0; l < layers.size(); ++l) {
            if (!turns[l]) layers[l].rope = DecoderConfig::LayerRope::none;
        }
    }

    void check_length(const char* key, std::size_t length) const {
        if (length != config_.layers.size())
            throw Error(reader_.name(key) + " lists " + std::to_string(length) +
                        " layers, but the model has " + std::to_string(config_.layers.size()));
    }

    void read_end_ids() {
        const Json* eos = reader_.find("eos_token_id");
        if (eos == nullptr) return;
        const auto add = [&](const Json& id) {
            const std::int64_t value = id.integer(reader_.name("eos_token_id"));
            if (value < 0 || value >= config_.vocab_size)
                throw Error(reader_.name("eos_token_id") + " " + std::to_string(value) +
                            " is outside the vocabulary of " + std::to_string(config_.vocab_size));
            config_.eos_ids.push_back(static_cast<std::int32_t>(value));
        };
        if (eos->is_array()) {
            for (const Json& id : eos->array())
                add(id);
        } else {
            add(*eos);
        }
    }

    ConfigReader reader_;
    DecoderConfig config_;
};

}  // namespace

bool DecoderConfig::ties_head(const ModelFiles& files) const {
    const std::string file = files.path().string();
    const std::string head_name = std::string(family->tensors.head) + ".weight";
    const StoredTensor* const head = files.find(head_name);
    const bool tied = tie_word_embeddings.value_or(head == nullptr);
    if (tied && head != nullptr) {
        const std::string embedding_name = std::string(family->tensors.embedding) + ".weight";
        const StoredTensor& embedding = files.at(embedding_name);
        if (head->type != embedding.type || head->bytes != embedding.bytes ||
            std::memcmp(head->data, embedding.data, head->bytes) != 0)
            throw Error(file + ": the config ties " + head_name + " to " + embedding_name +
                        ", but the file holds two different tensors: set tie_word_embeddings to "
                        "false or remove " +
                        head_name);
    }
    if (!tied && head == nullptr)
        throw Error(file + ": tensor " + head_name +
                    " is missing, and tie_word_embeddings is false");
    return tied;
}

DecoderConfig DecoderConfig::from_json(const Json& json, const std::string& source) {
    json.object(source);
    return Builder(json, source).build();
}

}  // namespace garam
