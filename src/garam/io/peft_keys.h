// What PEFT calls an adapter's tensors: the prefix, the module's path and one of these ends.
#pragma once

#include <string>
#include <string_view>

namespace garam {

constexpr std::string_view kPeftPrefix = "base_model.model.";
constexpr std::string_view kPeftA = ".lora_A.weight";
constexpr std::string_view kPeftB = ".lora_B.weight";
constexpr std::string_view kPeftEmbeddingA = ".lora_embedding_A";
constexpr std::string_view kPeftEmbeddingB = ".lora_embedding_B";
constexpr std::string_view kPeftMagnitude = ".lora_magnitude_vector";
constexpr std::string_view kPeftTokens = ".token_adapter.trainable_tokens_delta";

inline std::string peft_key(std::string_view module, std::string_view end) {
    return std::string(kPeftPrefix).append(module).append(end);
}

}  // namespace garam
