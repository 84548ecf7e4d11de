#include "garam/io/gguf_metadata.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "garam/core/error.h"

namespace garam {
namespace {

// llama3's divisors of the unscaled frequencies, [head_dim / 2]: 1 below the wavelength
// original / high, `factor` above original / low, and between them 1 / ((1 - t) / factor + t) with
// t = (original / wavelength - low) / (high - low).
std::vector<float> llama3_divisors(std::int64_t head_dim, double theta, double factor, double low,
                                   double high, double original) {
    // In fp32 throughout, as llama.cpp's converter has them: the same bits.
    const auto stretch = static_cast<float>(factor);
    const auto slow = static_cast<float>(low);
    const auto span = static_cast<float>(high - low);
    const auto length = static_cast<float>(original);
    std::vector<float> divisors;
    for (std::int64_t pair = 0; pair < head_dim / 2; ++pair) {
        const float exponent = static_cast<float>(2 * pair) / static_cast<float>(head_dim);
        const float frequency = 1.0f / std::pow(static_cast<float>(theta), exponent);
        const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
        float divisor = 1;
        if (static_cast<double>(wavelength) > original / low) {
            divisor = stretch;
        } else if (static_cast<double>(wavelength) >= original / high) {
            const float t = (length / wavelength - slow) / span;
            divisor = 1 / ((1 - t) / stretch + t);
        }
        divisors.push_back(divisor);
    }
    return divisors;
}

class Translation {
  public:
    Translation(const Json& config, std::string source)
        : config_(config), source_(std::move(source)) {}

    GgufMetadata take() {
        config_.object(source_);
        const Json* type = find("model_type");
        const std::string name = type == nullptr ? "" : type->string(at("model_type"));
        const GgufArchitecture* family = find_gguf_architecture_of(name);
        if (family == nullptr)
            throw Error(at("model_type") + " \"" + name +
                        "\" cannot be written as GGUF; supported are the families " +
                        known_gguf_architectures());
        out_.architecture = family_ = family;
        put("general.architecture", std::string(family->name));
        sizes();
        for (const GgufNumber& number : family->numbers)
            put(own(number.gguf), real(config_, number.hugging_face, number.otherwise));
        rope();
        windows();
        if (family->norms_plus_one) query_scale();
        if (family->model_type == "smollm3") check_layers_without_rope();
        refuse_what_has_no_word();
        return std::move(out_);
    }

  private:
    // nullptr when absent or null.
    const Json* find(std::string_view key) const { return find_in(config_, key); }
    static const Json* find_in(const Json& json, std::string_view key) {
        const Json* value = json.find(key);
        return value == nullptr || value->is_null() ? nullptr : value;
    }
    std::string at(std::string_view key) const { return source_ + ": " + std::string(key); }
    std::string own(std::string_view name) const {
        return std::string(family_->name) + "." + std::string(name);
    }
    void put(std::string key, GgufValue value) {
        out_.keys.emplace_back(std::move(key), std::move(value));
    }
    [[noreturn]] void refuse(std::string_view key, const std::string& why) const {
        throw Error(at(key) + " " + why);
    }

    std::int64_t size(std::string_view key, std::int64_t otherwise = 0) const {
        const Json* value = find(key);
        if (value == nullptr && otherwise == 0) refuse(key, "is missing");
        const std::int64_t number = value == nullptr ? otherwise : value->integer(at(key));
        if (number < 1 || number > std::numeric_limits<std::int32_t>::max())
            refuse(key, "is " + std::to_string(number) + ", not between 1 and 2^31 - 1");
        return number;
    }
    void put_size(std::string_view name, std::int64_t value) {
        put(own(name), static_cast<std::uint32_t>(value));
    }
    float real(const Json& json, std::string_view key, double otherwise) const {
        const Json* value = find_in(json, key);
        const double number = value == nullptr ? otherwise : value->number(at(key));
        if (!std::isfinite(static_cast<float>(number))) refuse(key, "must be a finite number");
        return static_cast<float>(number);
    }
    double need_real(const Json& json, std::string_view key) const {
        if (find_in(json, key) == nullptr) refuse(key, "is missing in its RoPE scaling");
        const double number = find_in(json, key)->number(at(key));
        if (!(number > 0) || !std::isfinite(number)) refuse(key, "must be a positive number");
        return number;
    }
    void note(const std::string& sentence) { out_.notes.push_back(sentence); }

    void sizes() {
        hidden_ = size("hidden_size");
        // EXAONE's own names, or those that Transformers gives them.
        layers_ =
            size(find(family_->layers_key) != nullptr ? family_->layers_key : "num_hidden_layers");
        // The layers are listed below, by a number that is the file's.
        constexpr std::int64_t kMostLayers = 1 << 16;
        if (layers_ > kMostLayers)
            refuse(family_->layers_key, "is more than " + std::to_string(kMostLayers));
        heads_ = size("num_attention_heads");
        kv_heads_ = size("num_key_value_heads", heads_);
        if (family_->head_dim == 0 && find("head_dim") == nullptr && hidden_ % heads_ != 0)
            refuse("hidden_size", "is no multiple of num_attention_heads, and head_dim is missing");
        head_dim_ =
            size("head_dim", family_->head_dim > 0 ? family_->head_dim
                                                   : std::max<std::int64_t>(1, hidden_ / heads_));
        rotated_ = head_dim_;
        if (find("partial_rotary_factor") != nullptr) {
            const double share = need_real(config_, "partial_rotary_factor");
            rotated_ = static_cast<std::int64_t>(static_cast<double>(head_dim_) * share);
            if (share > 1 || rotated_ < 2 || (rotated_ != head_dim_ && family_->name != "phi3"))
                refuse("partial_rotary_factor", "cannot be written as GGUF for this family");
        }
        out_.num_heads = heads_;
        out_.num_kv_heads = kv_heads_;
        put_size("context_length", size("max_position_embeddings"));
        put_size("embedding_length", hidden_);
        put_size("block_count", layers_);
        put_size("feed_forward_length", size("intermediate_size"));
        put_size("attention.head_count", heads_);
        put_size("attention.head_count_kv", kv_heads_);
        put_size("attention.key_length", head_dim_);
        put_size("attention.value_length", head_dim_);
        put_size("rope.dimension_count", rotated_);
        put_size("vocab_size", size("vocab_size"));
        put(own("attention.layer_norm_rms_epsilon"),
            real(config_,
                 find(family_->epsilon_key) != nullptr ? family_->epsilon_key : "rms_norm_eps",
                 1e-6));
    }

    // The older field style has rope_theta and rope_scaling, the newer rope_parameters with both, in
    // Gemma 3 once for each kind of layer.
    void rope() {
        static const Json kNone;
        const Json* scaling = find("rope_parameters");
        if (scaling == nullptr) scaling = find("rope_scaling");
        double local = real_or("rope_local_base_freq", 10000);
        if (scaling != nullptr && find_in(*scaling, "full_attention") != nullptr) {
            if (const Json* sliding = find_in(*scaling, "sliding_attention"))
                local = find_in(*sliding, "rope_theta") != nullptr
                            ? need_real(*sliding, "rope_theta")
                            : local;
            scaling = find_in(*scaling, "full_attention");
        }
        const Json& given = scaling == nullptr ? kNone : *scaling;
        theta_ = real_or("rope_theta", family_->rope_theta);
        if (find_in(given, "rope_theta") != nullptr) theta_ = need_real(given, "rope_theta");
        put(own("rope.freq_base"), static_cast<float>(theta_));
        if (family_->name == "gemma3") put(own("rope.freq_base_swa"), static_cast<float>(local));
        scale_rope(given);
    }
    double real_or(std::string_view key, double otherwise) const {
        return find(key) == nullptr ? otherwise : need_real(config_, key);
    }

    void scale_rope(const Json& given) {
        const Json* named = find_in(given, "rope_type");
        if (named == nullptr) named = find_in(given, "type");
        const std::string type = named == nullptr ? "default" : named->string(at("rope_type"));
        if (type == "default") return;
        if (type == "linear") {
            put(own("rope.scaling.type"), std::string("linear"));
            put(own("rope.scaling.factor"), static_cast<float>(need_real(given, "factor")));
        } else if (type == "llama3" || type == "garam_divisors") {
            if (!family_->rope_divisors)
                refuse("rope_type", "\"" + type + "\" cannot be written as GGUF for this family");
            out_.tensors.emplace_back(
                "rope_freqs.weight",
                type == "llama3" ? llama3(given) : factors(given, "garam_rope_divisors"));
        } else if (type == "yarn") {
            yarn(given);
        } else if ((type == "longrope" || type == "su") && family_->name == "phi3") {
            long_rope(given);
        } else {
            refuse("rope_type", "\"" + type +
                                    "\" cannot be written as GGUF (supported: default, linear, "
                                    "llama3, yarn, and longrope for phi3)");
        }
    }

    std::vector<float> llama3(const Json& given) const {
        return llama3_divisors(head_dim_, theta_, need_real(given, "factor"),
                               need_real(given, "low_freq_factor"),
                               need_real(given, "high_freq_factor"),
                               need_real(given, "original_max_position_embeddings"));
    }

    std::vector<float> factors(const Json& given, std::string_view key) const {
        const Json* list = find_in(given, key);
        if (list == nullptr) refuse(key, "is missing in its RoPE scaling");
        std::vector<float> values;
        for (const Json& value : list->array(at(key)))
            values.push_back(static_cast<float>(value.number(at(key))));
        if (static_cast<std::int64_t>(values.size()) != rotated_ / 2)
            refuse(key, "has " + std::to_string(values.size()) + " numbers, not " +
                            std::to_string(rotated_ / 2));
        return values;
    }

    double original_length(const Json& given) const {
        constexpr std::string_view kKey = "original_max_position_embeddings";
        if (find_in(given, kKey) != nullptr) return need_real(given, kKey);
        return need_real(config_, find(kKey) != nullptr ? kKey : "max_position_embeddings");
    }

    void yarn(const Json& given) {
        for (const char* key : {"attention_factor", "mscale", "mscale_all_dim"}) {
            if (find_in(given, key) != nullptr)
                refuse(key, "cannot be written as GGUF with yarn scaling");
        }
        put(own("rope.scaling.type"), std::string("yarn"));
        put(own("rope.scaling.factor"), static_cast<float>(need_real(given, "factor")));
        put_size("rope.scaling.original_context_length",
                 static_cast<std::int64_t>(original_length(given)));
        for (const auto& [name, key] : {std::pair{"rope.scaling.yarn_beta_fast", "beta_fast"},
                                        std::pair{"rope.scaling.yarn_beta_slow", "beta_slow"}}) {
            if (find_in(given, key) != nullptr)
                put(own(name), static_cast<float>(need_real(given, key)));
        }
    }

    void long_rope(const Json& given) {
        out_.tensors.emplace_back("rope_factors_long.weight", factors(given, "long_factor"));
        out_.tensors.emplace_back("rope_factors_short.weight", factors(given, "short_factor"));
        const double original = original_length(given);
        put_size("rope.scaling.original_context_length", static_cast<std::int64_t>(original));
        const double ratio = static_cast<double>(size("max_position_embeddings")) / original;
        double factor = ratio <= 1 ? 1 : std::sqrt(1 + std::log(ratio) / std::log(original));
        if (find_in(given, "attention_factor") != nullptr)
            factor = need_real(given, "attention_factor");
        put(own("rope.scaling.attn_factor"), static_cast<float>(factor));
    }

    void put_window(std::int64_t tokens) { put_size("attention.sliding_window", tokens); }

    void windows() {
        const std::string_view type = family_->model_type;
        const bool has_window = find("sliding_window") != nullptr;
        if (type == "mistral" && has_window) {
            put_window(size("sliding_window"));
            note("llama.cpp does not know Mistral's window: beyond " +
                 std::to_string(size("sliding_window")) + " tokens it computes something else");
        }
        if (type == "phi3") {
            // 0 tells Phi-4, which has none, from older files without the key.
            put_window(has_window ? size("sliding_window") : 0);
            if (has_window)
                note("llama.cpp does not heed Phi-3's window: beyond " +
                     std::to_string(size("sliding_window")) + " tokens it computes something else");
        }
        if (type == "gemma2") put_window(size("sliding_window", 4096));
        if (type == "gemma3_text") {
            put_window(size("sliding_window", 4096));
            const std::int64_t period = gemma3_period();
            if (period != 6) put_size("attention.sliding_window_pattern", period);
        }
        if (type == "exaone4" && has_window) exaone4_windows();
    }

    // Every how many layers one attends to all.
    std::int64_t gemma3_period() const {
        const Json* types = find("layer_types");
        if (types == nullptr) return size("sliding_window_pattern", 6);
        const std::vector<bool> slides = layers_that_slide(*types);
        std::size_t period = 0;
        while (period < slides.size() && slides[period])
            ++period;
        ++period;
        for (std::size_t layer = 0; layer < slides.size(); ++layer) {
            if (slides[layer] != ((layer + 1) % period != 0))
                refuse("layer_types", "is no regular pattern, which GGUF cannot hold");
        }
        // All layers of a short model may lie within the first, shorter than the usual, period.
        return period > slides.size() && slides.size() < 6 ? 6 : static_cast<std::int64_t>(period);
    }

    std::vector<bool> layers_that_slide(const Json& types) const {
        std::vector<bool> slides;
        for (const Json& type : types.array(at("layer_types")))
            slides.push_back(type.string(at("layer_types")) == "sliding_attention");
        if (static_cast<std::int64_t>(slides.size()) != layers_)
            refuse("layer_types", "has " + std::to_string(slides.size()) + " entries for " +
                                      std::to_string(layers_) + " layers");
        return slides;
    }

    void exaone4_windows() {
        put_window(size("sliding_window"));
        std::vector<bool> slides;
        if (const Json* types = find("layer_types")) {
            slides = layers_that_slide(*types);
        } else {
            const Json* pattern = find("sliding_window_pattern");
            std::string letters = "LLLG";
            if (pattern != nullptr && pattern->is_string()) letters = pattern->string();
            if (letters.empty()) refuse("sliding_window_pattern", "is empty");
            for (std::int64_t layer = 0; layer < layers_; ++layer)
                slides.push_back(letters[static_cast<std::size_t>(layer) % letters.size()] == 'L');
        }
        if (layers_ != 64)
            note("llama.cpp knows EXAONE-4's windows only in the model of 64 layers");
        put(own("attention.sliding_window_pattern"),
            std::vector<std::uint8_t>(slides.begin(), slides.end()));
    }

    void query_scale() {
        const bool is_27b = layers_ == (family_->name == "gemma2" ? 46 : 62);
        const double usual = static_cast<double>(is_27b ? hidden_ / heads_ : head_dim_);
        const double scalar = real_or("query_pre_attn_scalar", 256);
        if (scalar == usual) return;
        put(own("attention.scale"), static_cast<float>(1 / std::sqrt(scalar)));
        note("llama.cpp scales the scores of this model by " + std::to_string(usual) +
             "^-0.5, not by query_pre_attn_scalar = " + std::to_string(scalar) + "^-0.5");
    }

    // llama.cpp has no key for them: each fourth layer has none.
    void check_layers_without_rope() const {
        const Json* listed = find("no_rope_layers");
        const std::int64_t interval = size("no_rope_layer_interval", 4);
        for (std::int64_t layer = 0; layer < layers_; ++layer) {
            bool has_rope = (layer + 1) % interval != 0;
            if (listed != nullptr) {
                const Json::Array& list = listed->array(at("no_rope_layers"));
                if (static_cast<std::int64_t>(list.size()) != layers_)
                    refuse("no_rope_layers", "has " + std::to_string(list.size()) +
                                                 " entries for " + std::to_string(layers_) +
                                                 " layers");
                has_rope = list[static_cast<std::size_t>(layer)].integer(at("no_rope_layers")) != 0;
            }
            if (has_rope != ((layer + 1) % 4 != 0))
                refuse("no_rope_layers",
                       "cannot be written as GGUF: llama.cpp leaves RoPE out in each fourth layer");
        }
    }

    void refuse_what_has_no_word() const {
        const Json* windowed = find("use_sliding_window");
        if (windowed != nullptr && windowed->boolean(at("use_sliding_window")) &&
            find("sliding_window") != nullptr &&
            (family_->name == "qwen2" || family_->name == "qwen3" || family_->name == "smollm3"))
            refuse("use_sliding_window", "cannot be written as GGUF for this family");
    }

    const Json& config_;
    std::string source_;
    const GgufArchitecture* family_ = nullptr;
    GgufMetadata out_;
    std::int64_t hidden_ = 0;
    std::int64_t layers_ = 0;
    std::int64_t heads_ = 0;
    std::int64_t kv_heads_ = 0;
    std::int64_t head_dim_ = 0;
    std::int64_t rotated_ = 0;
    double theta_ = 0;
};

}  // namespace

GgufMetadata gguf_metadata(const Json& config, const std::string& source) {
    return Translation(config, source).take();
}

}  // namespace garam
