#include "fuzz/seeds.h"

#include <algorithm>
#include <cstdlib>

#include "garam/text/bpe_model.h"
#include "garam/text/unicode.h"
#include "io/gguf_builder.h"
#include "testing/temp_dir.h"

namespace garam::fuzz {
namespace {

namespace fs = std::filesystem;
using testing::Bytes;
using testing::GgufBuilder;

constexpr std::int64_t kHidden = 8;

struct Weight {
    std::string name;       // Hugging Face's
    std::string gguf_name;  // GGUF's
    std::vector<std::int64_t> shape;
};

std::vector<Weight> weights() {
    const std::string l = "model.layers.0.";
    return {{"model.embed_tokens.weight", "token_embd.weight", {SmallModel::kVocabulary, kHidden}},
            {l + "self_attn.q_proj.weight", "blk.0.attn_q.weight", {8, kHidden}},
            {l + "self_attn.k_proj.weight", "blk.0.attn_k.weight", {4, kHidden}},
            {l + "self_attn.v_proj.weight", "blk.0.attn_v.weight", {4, kHidden}},
            {l + "self_attn.o_proj.weight", "blk.0.attn_output.weight", {kHidden, 8}},
            {l + "mlp.gate_proj.weight", "blk.0.ffn_gate.weight", {12, kHidden}},
            {l + "mlp.up_proj.weight", "blk.0.ffn_up.weight", {12, kHidden}},
            {l + "mlp.down_proj.weight", "blk.0.ffn_down.weight", {kHidden, 12}},
            {l + "input_layernorm.weight", "blk.0.attn_norm.weight", {kHidden}},
            {l + "post_attention_layernorm.weight", "blk.0.ffn_norm.weight", {kHidden}},
            {"model.norm.weight", "output_norm.weight", {kHidden}}};
}

std::string values(const std::vector<std::int64_t>& shape) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape)
        count *= extent;
    std::string data;
    for (std::int64_t i = 0; i < count; ++i) {
        const float value = static_cast<float>(i % 7 - 3) * 0.125f;
        data.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    return data;
}

std::string byte_character(std::size_t byte) {
    std::string spelled;
    append_utf8(spelled, byte_characters()[byte]);
    return spelled;
}

Json token(int id, const char* content) {
    return Json::Object{{"id", id},        {"content", content}, {"single_word", false},
                        {"lstrip", false}, {"rstrip", false},    {"normalized", false},
                        {"special", true}};
}

}  // namespace

fs::path source_folder() {
    return GARAM_FUZZ_SOURCE;
}

fs::path data_folder() {
    const char* folder = std::getenv("GARAM_TEST_DATA");
    return folder != nullptr ? fs::path(folder) : source_folder() / ".." / "shared" / "data";
}

std::vector<InputFiles> reference_files(const fs::path& folder, std::string_view end,
                                        const std::string& name) {
    std::vector<fs::path> paths;
    std::error_code error;
    for (fs::recursive_directory_iterator it(folder, error), last; !error && it != last;
         it.increment(error))
        if (it->is_regular_file() && it->path().string().ends_with(end) &&
            it->file_size() <= kLargestSeed)
            paths.push_back(it->path());
    std::sort(paths.begin(), paths.end());
    std::vector<InputFiles> inputs;
    for (const fs::path& path : paths)
        inputs.push_back({{name, testing::read_file(path)}});
    return inputs;
}

std::vector<InputFiles> gguf_seeds() {
    std::vector<InputFiles> seeds =
        reference_files(data_folder() / "golden" / "gguf", ".gguf", "model.gguf");
    seeds.insert(seeds.begin(), {{"model.gguf", SmallModel::gguf()}});
    return seeds;
}

InputFiles files_of(const fs::path& folder, const std::vector<std::string>& names) {
    InputFiles files;
    for (const std::string& name : names) {
        std::error_code error;
        if (fs::file_size(folder / name, error) <= kLargestSeed && !error)
            files.push_back({name, testing::read_file(folder / name)});
    }
    return files;
}

std::string safetensors_of(const std::vector<StoredEntry>& entries) {
    Json header;
    std::string data;
    header.set("__metadata__", Json::Object{{"format", "pt"}});
    for (const StoredEntry& entry : entries) {
        Json::Array shape;
        for (const std::int64_t extent : entry.shape)
            shape.push_back(extent);
        const auto begin = static_cast<std::int64_t>(data.size());
        data += entry.data;
        header.set(entry.name,
                   Json::Object{{"dtype", entry.dtype},
                                {"shape", shape},
                                {"data_offsets",
                                 Json::Array{begin, static_cast<std::int64_t>(data.size())}}});
    }
    std::string text = header.dump();
    text.append((8 - text.size() % 8) % 8, ' ');
    return Bytes().text(text).str() + data;
}

std::string SmallModel::config() {
    return Json(Json::Object{{"model_type", "llama"},
                             {"architectures", Json::Array{"LlamaForCausalLM"}},
                             {"vocab_size", kVocabulary},
                             {"hidden_size", kHidden},
                             {"intermediate_size", 12},
                             {"num_hidden_layers", 1},
                             {"num_attention_heads", 2},
                             {"num_key_value_heads", 1},
                             {"head_dim", 4},
                             {"max_position_embeddings", 64},
                             {"rms_norm_eps", 1e-5},
                             {"rope_theta", 10000.0},
                             {"hidden_act", "silu"},
                             {"attention_bias", false},
                             {"mlp_bias", false},
                             {"tie_word_embeddings", true},
                             {"bos_token_id", 256},
                             {"eos_token_id", 258},
                             {"torch_dtype", "float32"}})
        .dump(1);
}

std::string SmallModel::tokenizer() {
    Json vocab;
    for (int byte = 0; byte < 256; ++byte)
        vocab.set(byte_character(static_cast<std::size_t>(byte)), byte);
    vocab.set("ab", 259);
    vocab.set("abc", 260);
    const Json byte_level(Json::Object{{"type", "ByteLevel"},
                                       {"add_prefix_space", false},
                                       {"trim_offsets", true},
                                       {"use_regex", true}});
    return Json(Json::Object{{"version", "1.0"},
                             {"truncation", nullptr},
                             {"padding", nullptr},
                             {"added_tokens",
                              Json::Array{token(256, "<|endoftext|>"), token(257, "<|im_start|>"),
                                          token(258, "<|im_end|>")}},
                             {"normalizer", nullptr},
                             {"pre_tokenizer", byte_level},
                             {"post_processor", nullptr},
                             {"decoder", byte_level},
                             {"model", Json::Object{{"type", "BPE"},
                                                    {"dropout", nullptr},
                                                    {"unk_token", nullptr},
                                                    {"continuing_subword_prefix", nullptr},
                                                    {"end_of_word_suffix", nullptr},
                                                    {"fuse_unk", false},
                                                    {"byte_fallback", false},
                                                    {"ignore_merges", false},
                                                    {"vocab", vocab},
                                                    {"merges", Json::Array{"a b", "ab c"}}}}})
        .dump();
}

std::string sentencepiece_tokenizer() {
    Json vocab;
    int id = 0;
    for (const char* piece :
         {"<unk>", "<s>", "</s>", "\u2581", "a", "b", "\u2581a", "ab", "\u00e9"})
        vocab.set(piece, id++);
    for (const char* byte : {"<0x00>", "<0x0A>", "<0x41>", "<0xC3>", "<0xA9>", "<0xFF>"})
        vocab.set(byte, id++);
    const auto object = [](const char* type, Json::Object members) {
        members.insert(members.begin(), {"type", type});
        return Json(std::move(members));
    };
    const Json single(Json::Object{{"Sequence", Json::Object{{"id", "A"}, {"type_id", 0}}}});
    const Json bos(Json::Object{{"SpecialToken", Json::Object{{"id", "<s>"}, {"type_id", 0}}}});
    return Json(
               Json::Object{
                   {"version", "1.0"},
                   {"added_tokens",
                    Json::Array{token(0, "<unk>"), token(1, "<s>"), token(2, "</s>")}},
                   {"normalizer",
                    object(
                        "Sequence",
                        {{"normalizers",
                          Json::Array{object("Prepend", {{"prepend", "\u2581"}}),
                                      object("Replace", {{"pattern", Json::Object{{"String", " "}}},
                                                         {"content", "\u2581"}}),
                                      object("NFC", {})}}})},
                   {"pre_tokenizer", object("Metaspace", {{"replacement", "\u2581"},
                                                          {"prepend_scheme", "first"},
                                                          {"split", true}})},
                   {"post_processor",
                    object(
                        "TemplateProcessing",
                        {{"single", Json::Array{bos, single}},
                         {"pair", Json::Array{bos, single}},
                         {"special_tokens",
                          Json::Object{{"<s>", Json::Object{{"id", "<s>"},
                                                            {"ids", Json::Array{1}},
                                                            {"tokens", Json::Array{"<s>"}}}}}}})},
                   {"decoder",
                    object("Sequence",
                           {{"decoders",
                             Json::Array{
                                 object("Replace", {{"pattern", Json::Object{{"String", "\u2581"}}},
                                                    {"content", " "}}),
                                 object("ByteFallback", {}), object("Fuse", {}),
                                 object("Strip",
                                        {{"content", " "}, {"start", 1}, {"stop", 0}})}}})},
                   {"model", object("BPE", {{"dropout", nullptr},
                                            {"unk_token", "<unk>"},
                                            {"fuse_unk", true},
                                            {"byte_fallback", true},
                                            {"vocab", vocab},
                                            {"merges", Json::Array{Json::Array{"a", "b"},
                                                                   Json::Array{"\u2581", "a"}}}})}})
        .dump();
}

std::string SmallModel::tokenizer_config() {
    return Json(Json::Object{
                    {"tokenizer_class", "PreTrainedTokenizerFast"},
                    {"bos_token", "<|endoftext|>"},
                    {"eos_token", Json::Object{{"content", "<|im_end|>"}, {"lstrip", false}}},
                    {"pad_token", "<|im_end|>"},
                    {"unk_token", nullptr},
                    {"add_bos_token", true},
                    {"add_eos_token", false},
                    {"clean_up_tokenization_spaces", false},
                    {"added_tokens_decoder", Json::Object{{"256", token(256, "<|endoftext|>")}}},
                    {"additional_special_tokens", Json::Array{"<|im_start|>"}},
                    {"chat_template",
                     "{% for m in messages %}{{ '<|im_start|>' + m['role'] + m['content'] }}"
                     "{% endfor %}"}})
        .dump(1);
}

std::string SmallModel::safetensors(int part, int parts) {
    std::vector<StoredEntry> entries;
    int number = 0;
    for (const Weight& weight : weights())
        if (number++ % parts == part)
            entries.push_back({weight.name, "F32", weight.shape, values(weight.shape)});
    return safetensors_of(entries);
}

std::string SmallModel::index(int parts) {
    Json map;
    int number = 0;
    for (const Weight& weight : weights())
        map.set(weight.name, "model-0000" + std::to_string(number++ % parts + 1) + "-of-0000" +
                                 std::to_string(parts) + ".safetensors");
    return Json(
               Json::Object{{"metadata", Json::Object{{"total_size", 12000}}}, {"weight_map", map}})
        .dump(1);
}

std::string SmallModel::gguf() {
    GgufBuilder builder;
    builder.key_text("general.architecture", "llama");
    builder.key_text("general.name", "small");
    builder.key_u32("general.alignment", 32);
    builder.key_u32("llama.context_length", 64);
    builder.key_u32("llama.embedding_length", kHidden);
    builder.key_u32("llama.block_count", 1);
    builder.key_u32("llama.feed_forward_length", 12);
    builder.key_u32("llama.attention.head_count", 2);
    builder.key_u32("llama.attention.head_count_kv", 1);
    builder.key_u32("llama.rope.dimension_count", 4);
    builder.key_f32("llama.rope.freq_base", 10000);
    builder.key_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    builder.key_u32("llama.vocab_size", kVocabulary);
    builder.key_text("tokenizer.ggml.model", "gpt2");
    builder.key_text("tokenizer.ggml.pre", "smollm");
    Bytes tokens;
    Bytes types;
    tokens.put<std::uint32_t>(8).put<std::uint64_t>(kVocabulary);
    types.put<std::uint32_t>(5).put<std::uint64_t>(kVocabulary);
    for (int id = 0; id < kVocabulary; ++id) {
        if (id < 256) {
            tokens.text(byte_character(static_cast<std::size_t>(id)));
        } else {
            tokens.text(id == 259 ? "ab" : id == 260 ? "abc" : "<|" + std::to_string(id) + "|>");
        }
        types.put<std::int32_t>(id < 256 || id == 259 || id == 260 ? 1 : 3);
    }
    builder.key_raw("tokenizer.ggml.tokens", 9, tokens.str());
    builder.key_raw("tokenizer.ggml.token_type", 9, types.str());
    builder.key_raw(
        "tokenizer.ggml.merges", 9,
        Bytes().put<std::uint32_t>(8).put<std::uint64_t>(2).text("a b").text("ab c").str());
    builder.key_u32("tokenizer.ggml.bos_token_id", 256);
    builder.key_u32("tokenizer.ggml.eos_token_id", 258);
    builder.key_raw("tokenizer.ggml.add_bos_token", 7, std::string(1, '\1'));
    builder.key_text("tokenizer.chat_template",
                     "{% for m in messages %}{{ m.role + m.content }}{% endfor %}");
    for (const Weight& weight : weights()) {
        std::vector<std::uint64_t> extents(weight.shape.rbegin(), weight.shape.rend());
        builder.tensor(weight.gguf_name, extents, 0, values(weight.shape));
    }
    return builder.build();
}

InputFiles SmallModel::adapter() {
    const Json config(Json::Object{{"peft_type", "LORA"},
                                   {"task_type", "CAUSAL_LM"},
                                   {"base_model_name_or_path", "small"},
                                   {"r", 2},
                                   {"lora_alpha", 4},
                                   {"lora_dropout", 0.0},
                                   {"use_rslora", false},
                                   {"use_dora", false},
                                   {"bias", "none"},
                                   {"fan_in_fan_out", false},
                                   {"inference_mode", true},
                                   {"init_lora_weights", true},
                                   {"layers_pattern", nullptr},
                                   {"layers_to_transform", nullptr},
                                   {"modules_to_save", nullptr},
                                   {"rank_pattern", Json::Object{}},
                                   {"alpha_pattern", Json::Object{}},
                                   {"target_modules", Json::Array{"q_proj", "v_proj"}}});
    const std::string module = "base_model.model.model.layers.0.self_attn.";
    const auto entry = [&](const std::string& name, std::vector<std::int64_t> shape) {
        return StoredEntry{module + name, "F32", shape, values(shape)};
    };
    return {
        {"adapter_config.json", config.dump(1)},
        {"adapter_model.safetensors", safetensors_of({entry("q_proj.lora_A.weight", {2, kHidden}),
                                                      entry("q_proj.lora_B.weight", {8, 2}),
                                                      entry("v_proj.lora_A.weight", {2, kHidden}),
                                                      entry("v_proj.lora_B.weight", {4, 2})})}};
}

}  // namespace garam::fuzz
