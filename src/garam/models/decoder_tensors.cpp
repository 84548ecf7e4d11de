#include "garam/models/decoder_tensors.h"

#include <cstring>

#include "garam/core/error.h"

namespace garam {

bool holds_shared_head(const ModelFiles& files, const std::string& head,
                       const std::string& embedding) {
    const StoredTensor* own = files.find(head);
    if (own == nullptr) return false;
    const StoredTensor& shared = files.at(embedding);
    if (own->type != shared.type || own->bytes != shared.bytes ||
        std::memcmp(own->data, shared.data, own->bytes) != 0)
        throw Error(files.path().string() + ": the config ties " + head + " to " + embedding +
                    ", but the file holds two different tensors: set tie_word_embeddings to "
                    "false or remove " +
                    head);
    return true;
}

void refuse_unknown_tensors(const ModelFiles& files, const std::set<std::string>& used,
                            const DecoderConfig& config) {
    for (const StoredTensor& tensor : files.tensors()) {
        if (used.contains(tensor.name) || tensor.name.ends_with("rotary_emb.inv_freq")) continue;
        throw Error(files.path().string() + ": tensor " + tensor.name +
                    " is not part of the model that the config describes (model_type " +
                    config.model_type + ", " + std::to_string(config.num_layers) +
                    " layers, attention_bias " + (config.qkv_bias ? "true" : "false") +
                    ", mlp_bias " + (config.mlp_bias ? "true" : "false") + ")");
    }
}

}  // namespace garam
