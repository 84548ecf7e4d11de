// A model's tokenizer as the tokenizer.* keys of a GGUF file.
//
// Byte-level BPE becomes model "gpt2" with its merges and the name that llama.cpp has for its
// pre-tokenizer; SentencePiece-style BPE (byte fallback, spaces as U+2581) model "llama", whose merges are
// told by scores: minus the rank of the first merge that makes a token. The merges themselves are there
// too, for readers that take them (garam does, llama.cpp goes by the scores). A GGUF's own keys are copied.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "garam/io/gguf_writer.h"

namespace garam {

struct GgufTokenizerKeys {
    GgufKeys keys;
    std::vector<std::string> notes;  // one sentence each: what llama.cpp may do otherwise
};

// `num_tokens`: rows of the embedding; ids beyond the tokenizer's become unused tokens. Throws Error
// naming the file: for a tokenizer with more tokens than that, and for a pipeline that llama.cpp has
// no name for.
GgufTokenizerKeys gguf_tokenizer_keys(const std::filesystem::path& model, std::int64_t num_tokens);

}  // namespace garam
