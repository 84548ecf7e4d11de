#include <cmath>
#include <string>
#include <vector>

#include "fuzz/seeds.h"
#include "fuzz/target.h"
#include "garam/core/error.h"
#include "garam/io/gguf.h"
#include "garam/io/model_files.h"
#include "garam/io/peft_adapter.h"
#include "garam/io/safetensors.h"
#include "garam/models/decoder_config.h"
#include "garam/models/rope.h"
#include "garam/serve/session.h"

namespace garam::fuzz {
namespace {

// Reads every tensor as the program would; what a tensor refuses is no end.
void read_all(const std::vector<StoredTensor>& tensors) {
    for (const StoredTensor& tensor : tensors) {
        // Elements are no more than bytes but for blocks of 4 bits.
        const std::int64_t elements = tensor.shape.elements();
        expect(elements >= 0 && static_cast<std::size_t>(elements) <= 2 * tensor.bytes,
               "a tensor has more elements than its bytes can hold");
        std::vector<float> wide(static_cast<std::size_t>(elements));
        std::vector<bfloat16> narrow(static_cast<std::size_t>(elements));
        try {
            read_tensor(tensor, wide.data());
            for (const float value : wide)
                expect(std::isfinite(value), "a read tensor is not finite");
            read_tensor(tensor, narrow.data());
            check_finite(tensor);
        } catch (const Error&) {
            continue;
        }
    }
}

std::string number_data(std::size_t bytes) {
    std::string data(bytes, '\0');
    for (std::size_t i = 0; i < bytes; ++i)
        data[i] = static_cast<char>(i % 50);
    return data;
}

Target safetensors_target() {
    Target target;
    target.name = "safetensors";
    target.files = {"model.safetensors"};
    target.bytes = std::size_t{1} << 20;
    target.bytes_per_byte = 100;
    target.seeds = [] {
        std::vector<InputFiles> seeds = {
            {{"model.safetensors", SmallModel::safetensors()}},
            {{"model.safetensors", safetensors_of({{"a", "F16", {2, 3}, number_data(12)},
                                                   {"b", "BF16", {1, 2, 2, 1}, number_data(8)},
                                                   {"c", "I64", {}, number_data(8)},
                                                   {"d", "U8", {0, 5}, ""},
                                                   {"e", "I32", {2}, number_data(8)}})}}};
        for (InputFiles& files :
             reference_files(data_folder() / "golden", ".safetensors", "model.safetensors"))
            seeds.push_back(std::move(files));
        return seeds;
    };
    target.run = [](const Execution& execution) {
        const auto file = SafetensorsFile::open(execution / "model.safetensors");
        for (const StoredTensor& tensor : file->tensors())
            expect(file->find(tensor.name) == &tensor, "a tensor is not found by its name");
        read_all(file->tensors());
    };
    return target;
}

Target sharded_target() {
    Target target;
    target.name = "sharded";
    target.files = {"config.json", "model.safetensors.index.json",
                    "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"};
    target.bytes = std::size_t{1} << 20;
    target.bytes_per_byte = 100;
    target.words = {"weight_map",
                    "metadata",
                    "total_size",
                    "model-00001-of-00002.safetensors",
                    "../x",
                    "/dev/zero",
                    "model.safetensors.index.json",
                    "model.norm.weight"};
    target.seeds = [names = target.files] {
        return std::vector<InputFiles>{{{names[0], SmallModel::config()},
                                        {names[1], SmallModel::index(2)},
                                        {names[2], SmallModel::safetensors(0, 2)},
                                        {names[3], SmallModel::safetensors(1, 2)}}};
    };
    target.run = [](const Execution& execution) {
        const ModelFiles files = ModelFiles::open(execution.folder);
        for (const StoredTensor& tensor : files.tensors())
            expect(files.find(tensor.name) == &tensor, "a tensor is not found by its name");
        read_all(files.tensors());
    };
    return target;
}

Target gguf_target() {
    Target target;
    target.name = "gguf";
    target.files = {"model.gguf"};
    target.bytes = std::size_t{1} << 20;
    target.bytes_per_byte = 150;
    target.seeds = [] {
        std::vector<InputFiles> seeds = {{{"model.gguf", SmallModel::gguf()}}};
        for (InputFiles& files :
             reference_files(data_folder() / "golden" / "gguf", ".gguf", "model.gguf"))
            seeds.push_back(std::move(files));
        return seeds;
    };
    target.run = [](const Execution& execution) {
        const auto file = GgufFile::open(execution / "model.gguf");
        read_all(file->tensors());
        const ModelFiles files = ModelFiles::open(execution / "model.gguf");
        read_all(files.tensors());
        DecoderConfig::from_json(files.config(), "model.gguf");
    };
    return target;
}

const std::vector<std::string>& config_words() {
    static const std::vector<std::string> words = {"model_type",
                                                   "llama",
                                                   "qwen2",
                                                   "qwen3",
                                                   "mistral",
                                                   "exaone",
                                                   "exaone4",
                                                   "gemma2",
                                                   "gemma3_text",
                                                   "phi3",
                                                   "granite",
                                                   "olmo2",
                                                   "smollm3",
                                                   "vocab_size",
                                                   "hidden_size",
                                                   "num_hidden_layers",
                                                   "num_attention_heads",
                                                   "num_key_value_heads",
                                                   "head_dim",
                                                   "max_position_embeddings",
                                                   "rms_norm_eps",
                                                   "rope_theta",
                                                   "rope_scaling",
                                                   "rope_parameters",
                                                   "rope_type",
                                                   "type",
                                                   "linear",
                                                   "dynamic",
                                                   "llama3",
                                                   "yarn",
                                                   "longrope",
                                                   "default",
                                                   "factor",
                                                   "low_freq_factor",
                                                   "high_freq_factor",
                                                   "original_max_position_embeddings",
                                                   "short_factor",
                                                   "long_factor",
                                                   "attention_factor",
                                                   "beta_fast",
                                                   "beta_slow",
                                                   "mscale",
                                                   "hidden_act",
                                                   "silu",
                                                   "gelu_pytorch_tanh",
                                                   "tie_word_embeddings",
                                                   "attention_bias",
                                                   "mlp_bias",
                                                   "eos_token_id",
                                                   "sliding_window",
                                                   "layer_types",
                                                   "full_attention",
                                                   "sliding_attention",
                                                   "no_rope_layers",
                                                   "partial_rotary_factor",
                                                   "quantization_config",
                                                   "torch_dtype",
                                                   "dtype",
                                                   "use_sliding_window",
                                                   "max_window_layers",
                                                   "final_logit_softcapping",
                                                   "attn_logit_softcapping",
                                                   "query_pre_attn_scalar",
                                                   "garam_divisors",
                                                   "garam_rope_divisors",
                                                   "embedding_multiplier",
                                                   "residual_multiplier",
                                                   "logits_scaling",
                                                   "attention_multiplier",
                                                   "sliding_window_pattern",
                                                   "rope_local_base_freq"};
    return words;
}

Target config_target() {
    Target target;
    target.name = "config";
    target.files = {"config.json"};
    // A config may name 65536 layers, each of which has its switches.
    target.bytes = std::size_t{4} << 20;
    target.bytes_per_byte = 200;
    target.words = config_words();
    target.seeds = [] {
        std::vector<InputFiles> seeds = {{{"config.json", SmallModel::config()}}};
        for (const char* folder : {"golden", "configs"})
            for (const char* end : {"config.json", "config.transformers5.json"})
                for (InputFiles& files :
                     reference_files(data_folder() / folder, end, "config.json"))
                    seeds.push_back(std::move(files));
        return seeds;
    };
    target.run = [](const Execution& execution) {
        const DecoderConfig config =
            DecoderConfig::from_json(Json::parse_file(execution / "config.json"), "config.json");
        expect(config.hidden_size > 0 && config.num_layers > 0 && config.vocab_size > 0 &&
                   config.num_heads > 0 && config.num_kv_heads > 0 && config.head_dim > 0 &&
                   config.intermediate_size > 0 && config.max_positions > 0,
               "a size that is not positive was accepted");
        // Sizes meet the weights before anything is made by them; the part of a head that turns is bounded here.
        expect(config.rotary_dim <= config.head_dim, "more of a head turns than there is");
        if (config.rotary_dim > 4096) return;
        for (const std::int64_t longest : {std::int64_t{0}, config.max_positions}) {
            for (const RopeConfig& rope : {config.rope, config.local_rope.value_or(config.rope)}) {
                for (const float frequency :
                     rope_inverse_frequencies(rope, config.rotary_dim, longest))
                    expect(std::isfinite(frequency), "a rotary frequency is not finite");
                expect(std::isfinite(rope.attention_scaling),
                       "the scaling of attention is not finite");
            }
        }
    };
    return target;
}

Target adapter_target() {
    Target target;
    target.name = "adapter";
    target.files = {"adapter_config.json", "adapter_model.safetensors"};
    target.bytes = std::size_t{1} << 20;
    target.bytes_per_byte = 200;
    target.words = {"peft_type",
                    "LORA",
                    "r",
                    "lora_alpha",
                    "lora_dropout",
                    "use_rslora",
                    "use_dora",
                    "bias",
                    "all",
                    "lora_only",
                    "target_modules",
                    "all-linear",
                    "rank_pattern",
                    "alpha_pattern",
                    "modules_to_save",
                    "layers_to_transform",
                    "layers_pattern",
                    "layer_replication",
                    "exclude_modules",
                    "target_parameters",
                    "trainable_token_indices",
                    "init_lora_weights",
                    "pissa",
                    "eva",
                    "olora",
                    "fan_in_fan_out",
                    "lora_bias",
                    "megatron_config",
                    "q_proj",
                    ".*\\\\.(q|v)_proj",
                    "(a+)+$",
                    "^(?:(?:a|b)*)*c",
                    "base_layer",
                    "lora_embedding_A",
                    "lora_magnitude_vector",
                    "lm_head"};
    target.seeds = [names = target.files] {
        std::vector<InputFiles> seeds = {SmallModel::adapter()};
        for (const char* family : {"exaone-3.5", "llama-llama3rope-tied", "phi3-partial"})
            seeds.push_back(
                files_of(data_folder() / "golden" / "families" / family / "adapter", names));
        return seeds;
    };
    target.run = [](const Execution& execution) {
        const PeftAdapter adapter = read_peft_adapter(execution.folder);
        const LoraTargets targets(adapter.settings);
        const std::string prefix = "base_model.model.";
        for (const AdapterTensor& tensor : adapter.tensors) {
            const std::size_t end = tensor.name.rfind(".lora_");
            if (end == std::string::npos) continue;  // a bias
            const std::string module = tensor.name.substr(prefix.size(), end - prefix.size());
            expect(std::isfinite(targets.scaling(module)), "the adapter's scaling is not finite");
        }
    };
    return target;
}

// All files of a small model, up to a model that answers.
Target session_target() {
    Target target;
    target.name = "session";
    target.files = {"config.json",         "generation_config.json",    "model.safetensors",
                    "adapter_config.json", "adapter_model.safetensors", "tokenizer.json"};
    target.bytes = kTokenizerBytes + (std::size_t{8} << 20);
    target.bytes_per_byte = 200;
    target.cpu_seconds = 20;  // the tables of the most positions that a config may have
    target.words = config_words();
    target.seeds = [] {
        InputFiles plain = {
            {"config.json", SmallModel::config()},
            {"generation_config.json", "{\"eos_token_id\": [258, 256], \"temperature\": 0.6}"},
            {"model.safetensors", SmallModel::safetensors()},
            {"tokenizer.json", SmallModel::tokenizer()}};
        InputFiles adapted = plain;
        for (InputFile& file : SmallModel::adapter())
            adapted.push_back(std::move(file));
        return std::vector<InputFiles>{std::move(plain), std::move(adapted)};
    };
    target.run = [](const Execution& execution) {
        SessionOptions options;
        options.model = execution.folder;
        options.device = "cpu";
        options.dtype = "f32";
        if (!execution.bytes("adapter_config.json").empty()) options.adapter = execution.folder;
        Session session(options);
        const std::vector<std::int32_t> ids = {0};
        std::vector<float> logits;
        KvCache cache = session.decoder().make_cache(1);
        session.decoder().decode(session.stream(), cache, ids, logits);
    };
    return target;
}

}  // namespace

std::vector<Target> model_file_targets() {
    return {safetensors_target(), sharded_target(), gguf_target(),
            config_target(),      adapter_target(), session_target()};
}

}  // namespace garam::fuzz
