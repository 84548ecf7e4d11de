// Special tokens that a vocabulary gets after its training, as Transformers' add_special_tokens adds them.
#pragma once

#include <string>
#include <vector>

#include "garam/text/tokenizer_files.h"

namespace garam {

// Adds those of `tokens` that the vocabulary does not have, numbered on from its last id in their order, to
// what the files say and to what is saved of them: tokenizer.json, and of tokenizer_config.json
// added_tokens_decoder and additional_special_tokens. Throws Error for a token that is empty or too long.
void add_special_tokens(TokenizerFiles& files, const std::vector<std::string>& tokens);

}  // namespace garam
