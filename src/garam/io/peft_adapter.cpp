#include "garam/io/peft_adapter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <unordered_map>

#include "garam/core/error.h"
#include "garam/core/error_source.h"
#include "garam/core/json.h"
#include "garam/io/atomic_write.h"
#include "garam/io/four_bit_checkpoint.h"
#include "garam/io/hub_cache.h"
#include "garam/io/peft_keys.h"
#include "garam/io/safetensors.h"

namespace garam {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigName = "adapter_config.json";
constexpr const char* kTensorsName = "adapter_model.safetensors";
constexpr const char* kQuantizationKey = "garam.base_quantization";
constexpr std::string_view kEndBias = ".bias";
constexpr std::int64_t kLargestRank = 1 << 20;

// Keys of PEFT's LoraConfig that change what the adapter computes, or which modules it has beyond what
// its tensors say, unless they are null, false, 0 or empty.
constexpr std::array<std::string_view, 16> kUnsupportedUnlessEmpty = {
    "use_qalora",          "use_bdlora",
    "ensure_weight_tying", "lora_bias",
    "fan_in_fan_out",      "layer_replication",
    "target_parameters",   "megatron_config",
    "arrow_config",        "alora_invocation_tokens",
    "kasa_config",         "velora_config",
    "monteclora_config",   "loftq_config",
    "corda_config",        "lora_ga_config"};

// Initialisations that leave the base weights as they are; the others subtract something from them, so
// that the adapter belongs to a base that is not on the disk.
constexpr std::array<std::string_view, 3> kHarmlessInitialisations = {"gaussian", "eva",
                                                                      "orthogonal"};

bool is_empty(const Json& value) {
    if (value.is_null()) return true;
    if (value.is_bool()) return !value.boolean();
    if (value.is_number()) return value.number() == 0;
    if (value.is_string()) return value.string().empty();
    return value.is_array() ? value.array().empty() : value.object().empty();
}

class ConfigReader {
  public:
    explicit ConfigReader(const fs::path& path) : path_(path), config_(Json::parse_file(path)) {
        if (!config_.is_object()) throw Error(path_.string() + ": must be a JSON object");
    }

    LoraSettings read() const {
        LoraSettings settings;
        const std::string type = need("peft_type").string(at("peft_type"));
        if (type != "LORA") refuse("peft_type", type, "supported is LORA");
        for (const std::string_view key : kUnsupportedUnlessEmpty) {
            const Json* value = config_.find(key);
            if (value != nullptr && !is_empty(*value))
                refuse(std::string(key), value->dump(),
                       "supported are plain LoRA, rsLoRA and DoRA");
        }
        if (const Json* bias = config_.find("bias"); bias != nullptr && !is_empty(*bias)) {
            settings.bias = bias->string(at("bias"));
            if (settings.bias != "none" && settings.bias != "all" && settings.bias != "lora_only")
                refuse("bias", settings.bias, "supported are none, all and lora_only");
        }
        check_initialisation();

        settings.r = need("r").integer(at("r"));
        if (settings.r < 1 || settings.r > kLargestRank)
            throw Error(at("r") + " is " + std::to_string(settings.r) + "; it must be in [1, " +
                        std::to_string(kLargestRank) + "]");
        settings.lora_alpha = number("lora_alpha", settings.lora_alpha);
        settings.lora_dropout = number("lora_dropout", settings.lora_dropout);
        if (settings.lora_dropout < 0 || settings.lora_dropout >= 1)
            throw Error(at("lora_dropout") + " must be at least 0 and below 1");
        if (const Json* value = present("use_rslora"))
            settings.use_rslora = value->boolean(at("use_rslora"));
        if (const Json* value = present("use_dora"))
            settings.use_dora = value->boolean(at("use_dora"));
        if (const Json* value = present("base_model_name_or_path"))
            settings.base_model_name_or_path = value->string(at("base_model_name_or_path"));
        read_targets(settings);
        read_token_indices(settings);
        if (const Json* value = present("modules_to_save")) {
            for (const Json& name : value->array(at("modules_to_save")))
                settings.modules_to_save.push_back(name.string(at("modules_to_save")));
        }
        settings.rank_pattern = numbers("rank_pattern", 1, kLargestRank);
        for (const auto& [pattern, rank] : settings.rank_pattern)
            if (rank != std::floor(rank))
                throw Error(at("rank_pattern") + ": the rank of " + pattern + " must be whole");
        settings.alpha_pattern = numbers("alpha_pattern", -1e30, 1e30);
        naming_source(path_.string(), [&] { const LoraTargets checked(settings); });
        return settings;
    }

  private:
    std::string at(const char* key) const { return path_.string() + ": " + key; }

    [[noreturn]] void refuse(const std::string& key, const std::string& value,
                             const std::string& supported) const {
        throw Error(path_.string() + ": " + key + " = " + value + " is not supported; " +
                    supported);
    }
    const Json& need(const char* key) const { return config_.at(key, path_.string()); }
    const Json* present(const char* key) const {
        const Json* value = config_.find(key);
        return value == nullptr || value->is_null() ? nullptr : value;
    }
    double number(const char* key, double fallback) const {
        const Json* value = present(key);
        if (value == nullptr) return fallback;
        const double result = value->number(at(key));
        if (!std::isfinite(result)) throw Error(at(key) + " must be finite");
        return result;
    }
    // A list of the embedding's tokens, or a map from its name to them.
    void read_token_indices(LoraSettings& settings) const {
        const Json* value = present("trainable_token_indices");
        if (value == nullptr) return;
        if (value->is_object()) {
            if (value->object().size() != 1 ||
                !value->object().begin()->first.ends_with("embed_tokens"))
                refuse("trainable_token_indices", value->dump(),
                       "supported are tokens of embed_tokens");
            value = &value->object().begin()->second;
        }
        for (const Json& index : value->array(at("trainable_token_indices")))
            settings.trainable_token_indices.push_back(
                index.integer(at("trainable_token_indices")));
    }
    // Names, or nothing where the file says it otherwise: the tensors then say what it comes to.
    void read_targets(LoraSettings& settings) const {
        bool chooses = false;
        for (const char* key : {"exclude_modules", "layers_to_transform", "layers_pattern"}) {
            const Json* value = config_.find(key);
            // A layer may be the number 0.
            chooses = chooses || (value != nullptr && (!is_empty(*value) || value->is_number()));
        }
        const Json* value = present("target_modules");
        if (value == nullptr) return;
        if (!value->is_array()) {
            value->string(at("target_modules"));
            return;
        }
        std::vector<std::string> names;
        for (const Json& name : value->array())
            names.push_back(name.string(at("target_modules")));
        if (!chooses) settings.target_modules = std::move(names);
    }
    std::vector<std::pair<std::string, double>> numbers(const char* key, double low,
                                                        double high) const {
        std::vector<std::pair<std::string, double>> result;
        const Json* value = present(key);
        if (value == nullptr) return result;
        for (const auto& [pattern, number] : value->object(at(key))) {
            const double of = number.number(at(key) + ": " + pattern);
            if (!(of >= low && of <= high))
                throw Error(at(key) + ": " + pattern + " is " + number.dump() +
                            ", which is out of range");
            result.emplace_back(pattern, of);
        }
        return result;
    }
    void check_initialisation() const {
        const Json* value = present("init_lora_weights");
        if (value == nullptr || value->is_bool()) return;
        const std::string& name = value->string(at("init_lora_weights"));
        if (std::find(kHarmlessInitialisations.begin(), kHarmlessInitialisations.end(), name) ==
            kHarmlessInitialisations.end())
            refuse("init_lora_weights", name,
                   "it altered the base weights, so that its own base is not on the disk; convert "
                   "the adapter to plain LoRA first (PEFT: "
                   "save_pretrained with path_initial_model_for_weight_conversion)");
    }

    fs::path path_;
    Json config_;
};

// The module path of a key "base_model.model.<module>.lora_X.weight".
std::string module_of(const std::string& key, std::string_view end) {
    return key.substr(kPeftPrefix.size(), key.size() - kPeftPrefix.size() - end.size());
}

class TensorReader {
  public:
    TensorReader(const fs::path& path, const LoraSettings& settings)
        : path_(path),
          targets_(settings),
          has_biases_(settings.bias != "none"),
          saved_(settings.modules_to_save),
          tokens_(static_cast<std::int64_t>(settings.trainable_token_indices.size())),
          is_dora_(settings.use_dora),
          file_(SafetensorsFile::open(path)) {}

    // Also collects the module paths, in the order of the file.
    std::vector<AdapterTensor> read(std::vector<std::string>& modules,
                                    std::vector<AdapterTensor>& embeddings) {
        std::vector<AdapterTensor> tensors;
        for (const StoredTensor& stored : file_->tensors()) {
            const std::string& name = stored.name;
            if (has_biases_ && name.starts_with(kPeftPrefix) && name.ends_with(kEndBias)) {
                tensors.push_back(values_of(stored));
                continue;
            }
            if (!is_saved(name) && is_of_vocabulary(name)) {
                embeddings.push_back(values_of(stored));
                continue;
            }
            if (name.find(".base_layer.") != std::string::npos) continue;
            if (is_dora_ && is_tensor_of_module(name, kPeftMagnitude)) {
                check_magnitude(stored);
                tensors.push_back(values_of(stored));
                continue;
            }
            const Pair* const pair = pair_of(name);
            if (tokens_ > 0 && name.starts_with(kPeftPrefix) && name.ends_with(kPeftTokens)) {
                if (stored.shape.rank() != 2 || stored.shape[0] != tokens_)
                    throw Error(path_.string() + ": tensor " + name + " has shape " +
                                stored.shape.to_string() + ", but " + kConfigName + " names " +
                                std::to_string(tokens_) + " tokens");
                tensors.push_back(values_of(stored));
                continue;
            }
            if (pair == nullptr && is_saved(name)) {
                tensors.push_back(values_of(stored));
                continue;
            }
            if (pair == nullptr || !is_tensor_of_module(name, pair->end)) refuse_kind(name);
            const std::string module = module_of(name, pair->end);
            check_pair(stored, module, *pair);
            if (pair->is_a) modules.push_back(module);

            tensors.push_back(values_of(stored));
        }
        if (tensors.empty()) throw Error(path_.string() + ": holds no LoRA tensors");
        return tensors;
    }

  private:
    [[noreturn]] void refuse_kind(const std::string& name) const {
        throw Error(path_.string() + ": tensor " + name +
                    " is not supported; supported are LoRA on linear layers (" +
                    std::string(kPeftPrefix) + "<module>" + std::string(kPeftA) + " and " +
                    std::string(kPeftB) + "), on the embedding (" + std::string(kPeftEmbeddingA) +
                    " and " + std::string(kPeftEmbeddingB) + ") and modules_to_save");
    }

    AdapterTensor values_of(const StoredTensor& stored) const {
        AdapterTensor tensor;
        tensor.name = stored.name;
        tensor.shape = stored.shape;
        tensor.values.resize(static_cast<std::size_t>(stored.shape.elements()));
        naming_source(path_.string(), [&] { read_tensor(stored, tensor.values.data()); });
        return tensor;
    }

    // The end of a LoRA tensor's key, and that of the other of its pair.
    struct Pair {
        std::string_view end, other;
        bool is_a;
    };
    static const Pair* pair_of(const std::string& name) {
        static constexpr std::array<Pair, 4> kPairs = {{{kPeftA, kPeftB, true},
                                                        {kPeftB, kPeftA, false},
                                                        {kPeftEmbeddingA, kPeftEmbeddingB, true},
                                                        {kPeftEmbeddingB, kPeftEmbeddingA, false}}};
        for (const Pair& pair : kPairs)
            if (name.ends_with(pair.end)) return &pair;
        return nullptr;
    }

    bool is_saved(const std::string& name) const {
        if (!name.starts_with(kPeftPrefix)) return false;
        const std::size_t end = name.rfind('.');
        return end > kPeftPrefix.size() &&
               !saved_by(saved_, name.substr(kPeftPrefix.size(), end - kPeftPrefix.size())).empty();
    }

    // The weight of the embedding or the head, be it one with an adapter or trained tokens.
    static bool is_of_vocabulary(std::string name) {
        constexpr std::string_view kWeight = ".weight";
        if (!name.starts_with(kPeftPrefix) || !name.ends_with(kWeight)) return false;
        name.resize(name.size() - kWeight.size());
        for (const std::string_view part : {".base_layer", ".token_adapter"})
            if (name.ends_with(part)) name.resize(name.size() - part.size());
        const std::string_view path = std::string_view(name).substr(kPeftPrefix.size());
        const std::string_view module = path.substr(path.rfind('.') + 1);
        return module == "embed_tokens" || module == "lm_head" || module == "wte";
    }

    static bool is_tensor_of_module(const std::string& name, std::string_view end) {
        return name.starts_with(kPeftPrefix) && name.ends_with(end) &&
               name.size() > kPeftPrefix.size() + end.size();
    }

    void check_magnitude(const StoredTensor& stored) const {
        const std::string b =
            std::string(kPeftPrefix) + module_of(stored.name, kPeftMagnitude) + std::string(kPeftB);
        const StoredTensor* pair = file_->find(b);
        if (pair == nullptr)
            throw Error(path_.string() + ": tensor " + b + " is missing beside " + stored.name);
        if (stored.shape.rank() != 1 || pair->shape.rank() != 2 ||
            stored.shape[0] != pair->shape[0])
            throw Error(path_.string() + ": tensor " + stored.name + " has shape " +
                        stored.shape.to_string() + ", " + b + " has " + pair->shape.to_string());
    }

    void check_pair(const StoredTensor& stored, const std::string& module, const Pair& pair) const {
        const int rank_axis = pair.is_a ? 0 : 1;
        const std::int64_t rank = targets_.rank(module);
        if (stored.shape.rank() != 2 || stored.shape[rank_axis] != rank)
            throw Error(path_.string() + ": tensor " + stored.name + " has shape " +
                        stored.shape.to_string() + ", but r is " + std::to_string(rank) + " in " +
                        kConfigName);
        const std::string other = std::string(kPeftPrefix) + module + std::string(pair.other);
        if (file_->find(other) == nullptr)
            throw Error(path_.string() + ": tensor " + other + " is missing beside " + stored.name);
        const std::string magnitude =
            std::string(kPeftPrefix) + module + std::string(kPeftMagnitude);
        if (is_dora_ && file_->find(magnitude) == nullptr)
            throw Error(path_.string() + ": tensor " + magnitude + " is missing beside " +
                        stored.name + ", but use_dora is true in " + kConfigName);
    }

    fs::path path_;
    LoraTargets targets_;
    bool has_biases_;
    std::vector<std::string> saved_;
    std::int64_t tokens_;
    bool is_dora_;
    std::shared_ptr<const SafetensorsFile> file_;
};

// PEFT writes whole numbers as such.
Json number_json(double value) {
    const bool whole = value == std::floor(value) && std::fabs(value) < 0x1p53;
    return whole ? Json(static_cast<std::int64_t>(value)) : Json(value);
}

Json numbers_json(const std::vector<std::pair<std::string, double>>& numbers) {
    Json json{Json::Object{}};
    for (const auto& [pattern, value] : numbers)
        json.set(pattern, number_json(value));
    return json;
}

// A list of names; text, where it is all-linear or a regular expression.
Json modules_json(const std::vector<std::string>& modules) {
    if (is_pattern(modules) || (modules.size() == 1 && modules[0] == "all-linear"))
        return Json(modules[0]);
    Json::Array names;
    for (const std::string& name : modules)
        names.emplace_back(name);
    return Json(std::move(names));
}

Json config_of(const LoraSettings& settings) {
    Json::Array layers;
    for (const std::int64_t layer : settings.layers_to_transform)
        layers.emplace_back(layer);
    Json::Array layers_pattern;
    for (const std::string& name : settings.layers_pattern)
        layers_pattern.emplace_back(name);
    Json::Array saved;
    for (const std::string& name : settings.modules_to_save)
        saved.emplace_back(name);
    Json config(Json::Object{
        {"alpha_pattern", numbers_json(settings.alpha_pattern)},
        {"auto_mapping", Json()},
        {"base_model_name_or_path", settings.base_model_name_or_path.empty()
                                        ? Json()
                                        : Json(settings.base_model_name_or_path)},
        {"bias", Json(settings.bias)},
        {"fan_in_fan_out", Json(false)},
        {"inference_mode", Json(true)},
        {"init_lora_weights", Json(true)},
        {"layer_replication", Json()},
        {"layers_pattern", layers_pattern.empty() ? Json() : Json(std::move(layers_pattern))},
        {"layers_to_transform", layers.empty() ? Json() : Json(std::move(layers))},
        {"loftq_config", Json(Json::Object{})},
        {"lora_alpha", number_json(settings.lora_alpha)},
        {"lora_dropout", Json(settings.lora_dropout)},
        {"megatron_config", Json()},
        {"megatron_core", Json("megatron.core")},
        {"modules_to_save", saved.empty() ? Json() : Json(std::move(saved))},
        {"peft_type", Json("LORA")},
        {"r", Json(settings.r)},
        {"rank_pattern", numbers_json(settings.rank_pattern)},
        {"revision", Json()},
        {"target_modules", modules_json(settings.target_modules)},
        {"task_type", Json("CAUSAL_LM")},
        {"use_dora", Json(settings.use_dora)},
        {"use_rslora", Json(settings.use_rslora)},
    });
    // Older readers do not know these keys.
    if (!settings.trainable_token_indices.empty()) {
        Json::Array tokens;
        for (const std::int64_t token : settings.trainable_token_indices)
            tokens.emplace_back(token);
        config.set("trainable_token_indices", Json(std::move(tokens)));
    }
    if (!settings.exclude_modules.empty())
        config.set("exclude_modules", modules_json(settings.exclude_modules));
    return config;
}

std::optional<BaseQuantization> base_quantization_of(const fs::path& file) {
    const auto opened = SafetensorsFile::open(file);
    for (const auto& [key, value] : opened->metadata()) {
        if (key != kQuantizationKey) continue;
        const std::string source = file.string() + ": " + key;
        Json config;
        config.set("quantization_config", Json::parse(value, source));
        return four_bit_config(config, source);
    }
    return std::nullopt;
}

}  // namespace

PeftAdapter read_peft_adapter(const fs::path& given) {
    const fs::path folder = find_model_path(given).path;
    std::error_code ignored;
    if (!fs::exists(folder / kConfigName, ignored))
        throw Error((folder / kConfigName).string() +
                    ": is missing; an adapter is a folder as PEFT's save_pretrained writes it");
    PeftAdapter adapter;
    adapter.settings = ConfigReader(folder / kConfigName).read();
    if (!fs::exists(folder / kTensorsName, ignored))
        throw Error((folder / kTensorsName).string() + ": is missing" +
                    (fs::exists(folder / "adapter_model.bin", ignored)
                         ? "; adapter_model.bin, a PyTorch pickle, is not supported: load it with "
                           "PEFT and save_pretrained(folder) again"
                         : ""));
    std::vector<std::string> modules;
    adapter.tensors =
        TensorReader(folder / kTensorsName, adapter.settings).read(modules, adapter.embeddings);
    if (adapter.settings.target_modules.empty())
        adapter.settings.target_modules = std::move(modules);
    adapter.base_quantization = base_quantization_of(folder / kTensorsName);
    return adapter;
}

void write_peft_adapter(const fs::path& folder, const LoraSettings& settings,
                        const std::vector<std::pair<std::string, Tensor>>& tensors,
                        const std::optional<BaseQuantization>& base_quantization) {
    for (const auto& [name, tensor] : tensors) {
        GARAM_CHECK(tensor.dtype() == DType::f32 && name.starts_with(kPeftPrefix),
                    name + " must be f32 under PEFT's key");
    }
    std::vector<std::pair<std::string, std::string>> metadata = {{"format", "pt"}};
    if (base_quantization)
        metadata.emplace_back(kQuantizationKey, to_json(*base_quantization).dump());
    write_safetensors(folder / kTensorsName, tensors, metadata);
    write_file_atomically(folder / kConfigName, config_of(settings).dump(2) + "\n");
}

}  // namespace garam
