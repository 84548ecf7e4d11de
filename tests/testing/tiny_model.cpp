#include "testing/tiny_model.h"

#include <cmath>
#include <fstream>

#include "garam/core/dtype.h"
#include "garam/core/philox.h"
#include "garam/io/safetensors.h"

namespace garam::testing {
namespace {

// GPT-2's printable stand-in of a byte, as UTF-8.
std::string stand_in(int byte) {
    const auto printable = [](int b) {
        return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
    };
    int point = byte;
    if (!printable(byte)) {
        point = 256;
        for (int b = 0; b < byte; ++b)
            point += !printable(b);
    }
    if (point < 0x80) return std::string(1, static_cast<char>(point));
    return {static_cast<char>(0xc0 | (point >> 6)), static_cast<char>(0x80 | (point & 0x3f))};
}

Json tokenizer() {
    Json vocab{Json::Object{}};
    for (int byte = 0; byte < 256; ++byte)
        vocab.set(stand_in(byte), byte);
    Json added{Json::Array{}};
    int id = 256;
    for (const char* token : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
        Json entry;
        entry.set("id", id++);
        entry.set("content", token);
        for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"})
            entry.set(flag, false);
        entry.set("special", true);
        added.push_back(entry);
    }
    Json byte_level;
    byte_level.set("type", "ByteLevel");
    byte_level.set("add_prefix_space", false);
    byte_level.set("trim_offsets", true);
    byte_level.set("use_regex", true);
    Json bpe;
    bpe.set("type", "BPE");
    for (const char* absent :
         {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"})
        bpe.set(absent, nullptr);
    bpe.set("fuse_unk", false);
    bpe.set("byte_fallback", false);
    bpe.set("ignore_merges", false);
    bpe.set("vocab", vocab);
    bpe.set("merges", Json::Array{});
    Json json;
    json.set("version", "1.0");
    json.set("truncation", nullptr);
    json.set("padding", nullptr);
    json.set("added_tokens", added);
    json.set("normalizer", nullptr);
    json.set("pre_tokenizer", byte_level);
    json.set("post_processor", nullptr);
    json.set("decoder", byte_level);
    json.set("model", bpe);
    return json;
}

template <typename T>
std::vector<T> converted(const std::vector<float>& values) {
    std::vector<T> result;
    for (const float value : values)
        result.emplace_back(value);
    return result;
}

}  // namespace

Json TinyModel::config() const {
    Json json;
    json.set("architectures", Json::Array{"LlamaForCausalLM"});
    json.set("model_type", "llama");
    json.set("vocab_size", vocab_size);
    json.set("hidden_size", hidden_size);
    json.set("intermediate_size", intermediate_size);
    json.set("num_hidden_layers", num_layers);
    json.set("num_attention_heads", num_heads);
    json.set("num_key_value_heads", num_kv_heads);
    json.set("head_dim", head_dim);
    json.set("max_position_embeddings", max_positions);
    json.set("rms_norm_eps", 1e-5);
    json.set("rope_theta", 10000.0);
    json.set("hidden_act", "silu");
    json.set("attention_bias", biases);
    json.set("mlp_bias", biases);
    json.set("tie_word_embeddings", tied);
    json.set("bos_token_id", 256);
    json.set("eos_token_id", 258);
    json.set("torch_dtype", dtype == "f32" ? "float32" : dtype == "f16" ? "float16" : "bfloat16");
    return json;
}

std::vector<std::int64_t> TinyModel::shape_of(const std::string& name) const {
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    const std::int64_t q = num_heads * head_dim;
    const std::int64_t kv = num_kv_heads * head_dim;
    std::int64_t out = hidden_size;
    std::int64_t in = hidden_size;
    if (has("embed_tokens") || has("lm_head")) out = vocab_size;
    if (has("q_proj")) out = q;
    if (has("k_proj") || has("v_proj")) out = kv;
    if (has("o_proj")) in = q;
    if (has("gate_proj") || has("up_proj")) out = intermediate_size;
    if (has("down_proj")) in = intermediate_size;
    if (has("norm") || name.ends_with(".bias")) return {out};
    return {out, in};
}

std::vector<std::pair<std::string, std::vector<float>>> TinyModel::weights() const {
    std::vector<std::string> names{"model.embed_tokens.weight"};
    for (std::int64_t l = 0; l < num_layers; ++l) {
        const std::string layer = "model.layers." + std::to_string(l) + ".";
        for (const char* part :
             {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
              "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
            names.push_back(layer + part + ".weight");
            if (biases) names.push_back(layer + part + ".bias");
        }
        names.push_back(layer + "input_layernorm.weight");
        names.push_back(layer + "post_attention_layernorm.weight");
    }
    names.push_back("model.norm.weight");
    if (!tied) names.push_back("lm_head.weight");

    std::vector<std::pair<std::string, std::vector<float>>> result;
    for (std::size_t n = 0; n < names.size(); ++n) {
        Random random(seed, n);
        const std::vector<std::int64_t> shape = shape_of(names[n]);
        std::int64_t count = 1;
        for (const std::int64_t extent : shape)
            count *= extent;
        const bool norm = names[n].find("norm") != std::string::npos;
        const double spread =
            shape.size() == 2 ? 1 / std::sqrt(static_cast<double>(shape[1])) : 0.1;
        std::vector<float> values;
        for (std::int64_t i = 0; i < count; ++i)
            values.push_back(static_cast<float>((norm ? 1 : 0) + spread * random.normal()));
        result.emplace_back(names[n], std::move(values));
    }
    return result;
}

void write_tiny_model(const std::filesystem::path& folder, const TinyModel& model) {
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "config.json") << model.config().dump(2);
    std::ofstream(folder / "tokenizer.json") << tokenizer().dump(1);
    Json tokenizer_config;
    tokenizer_config.set("tokenizer_class", "PreTrainedTokenizerFast");
    tokenizer_config.set("bos_token", "<|endoftext|>");
    tokenizer_config.set("eos_token", "<|im_end|>");
    tokenizer_config.set("pad_token", "<|im_end|>");
    tokenizer_config.set("clean_up_tokenization_spaces", false);
    if (model.chat_template)
        tokenizer_config.set("chat_template",
                             "{% for message in messages %}{{ '<|im_start|>' + message['role'] + "
                             "'\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
                             "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
                             "{% endif %}");
    std::ofstream(folder / "tokenizer_config.json") << tokenizer_config.dump(2);

    const auto weights = model.weights();
    std::vector<std::vector<float16>> halves;
    std::vector<std::vector<bfloat16>> narrow;
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const auto& [name, values] : weights) {
        Shape shape;
        for (const std::int64_t extent : model.shape_of(name))
            shape.append(extent);
        const void* data = values.data();
        DType dtype = DType::f32;
        if (model.dtype == "f16") {
            halves.push_back(converted<float16>(values));
            data = halves.back().data();
            dtype = DType::f16;
        } else if (model.dtype == "bf16") {
            narrow.push_back(converted<bfloat16>(values));
            data = narrow.back().data();
            dtype = DType::bf16;
        }
        tensors.emplace_back(name, Tensor(const_cast<void*>(data), dtype, shape, DeviceKind::cpu));
    }
    write_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
}

}  // namespace garam::testing
