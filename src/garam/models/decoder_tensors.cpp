#include "garam/models/decoder_tensors.h"

#include "garam/core/error.h"
#include "garam/models/decoder.h"
#include "garam/runtime/device.h"

namespace garam {

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

void check_tensors(const ModelFiles& files) {
    // A decoder that only counts looks at all of them.
    const auto device = make_dry_device(detect_cpu_profile());
    const Decoder decoder(*device, files, {});
}

}  // namespace garam
