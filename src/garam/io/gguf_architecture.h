// The model families that llama.cpp and garam both know, in the words of either: one row a family.
//
// GGUF names a tensor "blk.<layer>.<module>.weight" or "<module>.weight", Hugging Face
// "<layer prefix><layer>.<module>.weight". Names alone; what a family computes is the decoder's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace garam {

struct GgufName {
    std::string_view gguf;
    std::string_view hugging_face;
};

// A number that one family's config has beyond the sizes that all have: "<architecture>.<gguf>".
struct GgufNumber {
    std::string_view gguf;
    std::string_view hugging_face;
    double otherwise;  // where a file or a config is silent
};

struct GgufArchitecture {
    std::string_view name;        // general.architecture
    std::string_view model_type;  // of config.json
    std::string_view class_name;  // architectures[0] of config.json

    std::span<const GgufName> model_names;  // without ".weight"
    std::string_view layer_prefix;          // Hugging Face's, "model.layers."
    std::span<const GgufName> layer_names;  // without ".weight" or ".bias"

    // llama.cpp turns neighbouring rows of q and k, Hugging Face a row and the one half a head on: the
    // converters of these families permute the rows. For the others llama.cpp turns halves too.
    bool permuted = false;
    // The norms are stored as 1 + w.
    bool norms_plus_one = false;
    // rope_freqs.weight is understood, which holds llama3's scaling.
    bool rope_divisors = false;

    std::string_view layers_key = "num_hidden_layers";
    std::string_view epsilon_key = "rms_norm_eps";
    std::string_view activation_key = "hidden_act";
    std::string_view activation = "silu";
    std::int64_t head_dim = 0;  // where a config is silent; 0: hidden_size / num_attention_heads
    double rope_theta = 10000;  // where a config is silent
    std::span<const GgufNumber> numbers;
};

std::span<const GgufArchitecture> gguf_architectures();
// nullptr when not known. A model of type `mistral` is of architecture `llama`.
const GgufArchitecture* find_gguf_architecture(std::string_view name);
const GgufArchitecture* find_gguf_architecture_of(std::string_view model_type);
// "llama, qwen2, …" for messages.
std::string known_gguf_architectures();

// "blk.<layer>.<module>.<part>" or "<module>.<part>" of either side; a layer is a number without leading zeros.
struct GgufTensorName {
    std::optional<std::int64_t> layer;
    std::string_view module;  // GGUF's, as in the table
    std::string_view part;    // "weight", "bias"
};
// Nothing for a name that the family does not have.
std::optional<GgufTensorName> parse_gguf_name(const GgufArchitecture& architecture,
                                              std::string_view name);
std::optional<GgufTensorName> parse_hugging_face_name(const GgufArchitecture& architecture,
                                                      std::string_view name);
std::string gguf_name(const GgufTensorName& name);
std::string hugging_face_name(const GgufArchitecture& architecture, const GgufTensorName& name);

// The heads of a module whose rows are permuted: one of the two numbers for attn_q and attn_k, 0 for all others.
std::int64_t permuted_heads(const GgufArchitecture& architecture, std::string_view module,
                            std::int64_t num_heads, std::int64_t num_kv_heads);
// Where a GGUF has that row of Hugging Face's, with `head` rows a head: row j of half h of a head is its row
// 2j + h. 0: rows are not permuted.
std::int64_t permuted_row(std::int64_t row, std::int64_t head);
// Whether 1 is added to what is stored.
bool has_one_added(const GgufArchitecture& architecture, std::string_view module);

}  // namespace garam
