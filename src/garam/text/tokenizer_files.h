// What the files of a model say about its tokenizer, brought to one form: that of tokenizer.json.
//
// Folders with vocab.json and merges.txt, and GGUF files, are described as the tokenizer.json that means
// the same; so there is one tokenizer to build, and one that can be written for others to read.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "garam/core/json.h"
#include "garam/text/added_tokens.h"

namespace garam {

class GgufFile;

struct TokenizerFiles {
    std::string source;  // what error messages name
    Json tokenizer;      // tokenizer.json
    // Names of the roles, empty when the files give none.
    std::string bos_token;
    std::string eos_token;
    std::string pad_token;
    std::string unk_token;
    std::vector<AddedToken> added_tokens;     // beyond those of tokenizer.json
    std::vector<std::string> special_tokens;  // further names of special tokens
    // Override the post-processor, as add_bos_token and add_eos_token of tokenizer_config.json do.
    std::optional<bool> add_bos;
    std::optional<bool> add_eos;
    std::string chat_template;
    std::string tool_chat_template;  // another one for conversations with tools
    // File name and content, as Tokenizer::save writes them.
    std::vector<std::pair<std::string, std::string>> to_save;
};

// Throws Error naming the file and what is missing or unsupported.
TokenizerFiles read_huggingface_tokenizer(const std::filesystem::path& folder);
TokenizerFiles read_gguf_tokenizer(const GgufFile& file);

// Pieces of a tokenizer.json, for those who write one.
namespace tokenizer_json {
Json byte_level(bool add_prefix_space, bool use_regex);
Json split(const char* pattern);                       // Isolated
Json sequence(const char* member, Json::Array steps);  // of "pretokenizers", "decoders", ...
// Digits one by one, then ByteLevel with GPT-2's pattern: SmolLM, EXAONE.
Json digits_then_byte_level();
// {"type": "TemplateProcessing"}: BOS before the text, EOS behind it, each where it is not null.
Json template_processing(const std::pair<std::string, std::int64_t>* bos,
                         const std::pair<std::string, std::int64_t>* eos);
Json added_token(const AddedToken& token);
// The whole file.
Json document(Json::Array added_tokens, Json normalizer, Json pre_tokenizer, Json post_processor,
              Json decoder, Json model);

// The patterns of llama.cpp's and Transformers' pre-tokenizers.
extern const char* const kLlama3Pattern;
extern const char* const kQwen2Pattern;
}  // namespace tokenizer_json

}  // namespace garam
