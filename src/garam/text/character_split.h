// Pre-tokenizers that cut at single characters: Whitespace, WhitespaceSplit, Punctuation, BertPreTokenizer,
// CharDelimiterSplit, FixedLength.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "garam/core/json.h"
#include "garam/text/tokenizer.h"

namespace garam {

// One step: what it finds in a piece, and how the name of its behaviour as Split has it.
struct CharacterSplit {
    std::function<std::vector<ByteSpan>(std::string_view)> find;
    std::string behavior;
    bool invert = false;
};

// The steps that a pre-tokenizer of this type stands for; empty: it is none of these. Throws Error beginning
// with `where`.
std::vector<CharacterSplit> character_splits(const Json& description, const std::string& type,
                                             const std::string& where);

}  // namespace garam
