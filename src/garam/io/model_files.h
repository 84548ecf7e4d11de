// The files of a model, seen alike whether they are a Hugging Face folder (config.json and safetensors,
// sharded or not) or a GGUF file: Hugging Face's config keys, tensor names and memory layout.
//
// Files are memory-mapped; nothing is read before it is asked for. All sizes, offsets and shapes are
// checked against the file when it is opened. Throws Error naming file and tensor.
//
// From a GGUF the config has what Transformers' config of that family has (io/gguf_architecture.h lists
// them), for Llama: model_type,
// architectures, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads,
// num_key_value_heads, head_dim, vocab_size, max_position_embeddings, rms_norm_eps, rope_theta,
// rope_scaling, hidden_act, attention_bias, mlp_bias, tie_word_embeddings, bos_/eos_/pad_token_id.
// A `rope_freqs.weight` tensor (the only trace of llama3 scaling there) becomes
//   "rope_scaling": {"rope_type": "garam_divisors", "garam_rope_divisors": [head_dim / 2 numbers]}
// : each inverse frequency is divided by its number. It is not among tensors().
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "garam/core/json.h"
#include "garam/io/stored_tensor.h"

namespace garam {

class GgufFile;

class ModelFiles {
  public:
    // `path`: a folder with config.json, a file ending in .gguf, or a hub name whose files are in the
    // local cache (io/hub_cache.h).
    static ModelFiles open(const std::filesystem::path& path);
    ModelFiles(ModelFiles&&) noexcept;
    ModelFiles& operator=(ModelFiles&&) noexcept;
    ~ModelFiles();

    // Where the files are.
    const std::filesystem::path& path() const;
    bool is_gguf() const;
    // config.json, or for a GGUF what its keys say in config.json's words.
    const Json& config() const;
    // Hugging Face's repository name: by which it was opened, or which the files tell (config's
    // _name_or_path), else empty.
    std::string name() const;

    const std::vector<StoredTensor>& tensors() const;
    const StoredTensor* find(std::string_view name) const;
    // Throws Error naming the model and the tensor when it is missing.
    const StoredTensor& at(std::string_view name) const;

    // Puts another tensor of that name into its place, whose bytes are kept here (of one in 4 bits: none, it keeps
    // its own), or sets a key of the config. What was taken of either before is no longer valid.
    void replace(const StoredTensor& tensor, std::vector<std::byte> bytes);
    void set_config(std::string_view key, Json value);

    // Present for a GGUF: its raw keys (tokenizer, template).
    const GgufFile* gguf() const;

  private:
    struct Impl;
    explicit ModelFiles(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace garam
