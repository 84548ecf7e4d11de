// A SentencePiece model described as the tokenizer.json that means the same, in the way of Transformers'
// conversion: its normalizer's settings as normalizers, its scores as a Unigram model or as merges,
// user-defined pieces cut out whole, control pieces as special tokens.
//
// What SentencePiece itself does otherwise in rare cases, and neither the conversion nor this follows: it
// looks for the longest match of its charsmap where the normalizer goes by grapheme clusters, adds scores as
// float, and never finds control pieces in a text.
#pragma once

#include <filesystem>
#include <string>

#include "garam/core/json.h"
#include "garam/text/sentencepiece_model.h"
#include "garam/text/tokenizer_files.h"

namespace garam {

// The whole document, without post-processor. `legacy`: each part of a text between special tokens gets the
// space before it, not only the first one. Throws Error naming what is not supported.
Json sentencepiece_tokenizer(const SentencePieceModel& model, const std::string& source,
                             bool legacy = true);

// Fills `tokenizer`, roles that are not named yet, and which tokens go around a text, of a folder whose only
// tokenizer is this file. `config` is its tokenizer_config.json (or null), `model_type` that of config.json.
void describe_sentencepiece(const std::filesystem::path& file, const Json& config,
                            const std::string& model_type, TokenizerFiles& files);

}  // namespace garam
