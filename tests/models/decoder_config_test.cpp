#include "garam/models/decoder_config.h"

#include <gtest/gtest.h>

#include "garam/core/error.h"

namespace garam {
namespace {

Json small_config() {
    return Json::parse(R"({"model_type": "llama", "vocab_size": 100, "hidden_size": 32,
        "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
        "eos_token_id": [2, 5]})",
                       "config.json");
}

std::string error_of(const Json& config) {
    try {
        DecoderConfig::from_json(config, "config.json");
    } catch (const Error& e) {
        return e.what();
    }
    return "";
}

TEST(DecoderConfig, ReadsSizesAndDefaults) {
    const DecoderConfig config = DecoderConfig::from_json(small_config(), "config.json");
    EXPECT_EQ(config.head_dim, 8);
    EXPECT_EQ(config.num_kv_heads, 2);
    EXPECT_EQ(config.rope.theta, 10000);
    EXPECT_EQ(config.eos_ids, (std::vector<std::int32_t>{2, 5}));
    EXPECT_FALSE(config.tie_word_embeddings.has_value());
}

// Each change makes the config wrong; the message names the key.
TEST(DecoderConfig, RefusesByName) {
    const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
        {"model_type", "\"mixtral\"", "mixtral"},
        {"hidden_act", "\"gelu\"", "gelu"},
        {"vocab_size", "0", "vocab_size"},
        {"vocab_size", "\"many\"", "vocab_size"},
        {"vocab_size", "1e12", "vocab_size"},
        {"hidden_size", "-32", "hidden_size"},
        {"num_hidden_layers", "1000000000", "more than 65536"},
        {"max_position_embeddings", "100000000", "more than 16777216"},
        {"hidden_size", "33", "hidden_size"},
        {"num_key_value_heads", "3", "num_key_value_heads"},
        {"head_dim", "7", "head_dim"},
        {"rms_norm_eps", "0", "rms_norm_eps"},
        {"eos_token_id", "100", "eos_token_id"},
        {"attention_dropout", "0.1", "attention_dropout"},
        {"quantization_config", "{\"quant_method\": \"gptq\"}", "gptq"},
        {"quantization_config", "{\"load_in_8bit\": true}", "bitsandbytes in 8 bits"},
        {"rope_scaling", "{\"type\": \"mrope\", \"factor\": 4}", "mrope"},
        {"rope_scaling", "{\"type\": \"yarn\", \"factor\": -4}", "factor"},
        {"rope_scaling", "{\"type\": \"longrope\", \"short_factor\": [1]}", "short_factor"},
        {"partial_rotary_factor", "0.5", "partial_rotary_factor"},
        {"use_bidirectional_attention", "true", "use_bidirectional_attention"},
        {"rope_scaling", "{\"type\": \"yarn\", \"original_max_position_embeddings\": 1e20}",
         "2^31"},
        {"rope_scaling", "{\"type\": \"linear\"}", "factor"},
        {"rope_scaling", "{\"rope_type\": \"linear\", \"factor\": -1}", "factor"},
        {"rope_scaling", "3", "rope_scaling"},
        // Frequencies would be infinite, or no number.
        {"rope_theta", "1e-320", "rope_theta"},
        {"rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 1e-300}", "factor"},
        {"rope_scaling",
         "{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": "
         "1.0000000001, \"original_max_position_embeddings\": 32}",
         "high_freq_factor"},
        {"rope_scaling",
         "{\"type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 1e29}",
         "original_max_position_embeddings"},
        {"rope_parameters", "{\"rope_type\": \"llama3\", \"factor\": 8}", "low_freq_factor"},
        {"rope_parameters", "{\"rope_theta\": 0, \"rope_type\": \"default\"}", "rope_theta"},
    };
    for (const auto& [key, value, named] : cases) {
        Json config = small_config();
        config.set(key, Json::parse(value, "test"));
        EXPECT_NE(error_of(config).find(named), std::string::npos)
            << key << " = " << value << ": " << error_of(config);
    }
    for (const auto& [key, value, named] :
         std::vector<std::tuple<std::string, std::string, std::string>>{
             {"num_local_experts", "8", "mixture of experts"},
             {"vision_config", "{}", "vision"},
             {"alibi", "true", "ALiBi"}}) {
        Json config = small_config();
        config.set("model_type", "other");
        config.set(key, Json::parse(value, "test"));
        for (const std::string& part : {named, std::string("other"), std::string("exaone4")})
            EXPECT_NE(error_of(config).find(part), std::string::npos) << error_of(config);
    }
    EXPECT_NE(error_of(Json::parse("[]", "t")), "");
    EXPECT_NE(error_of(Json::parse("{}", "t")), "");
}

}  // namespace
}  // namespace garam
