// Small tokenizers made by the tests themselves.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "garam/core/json.h"
#include "garam/text/tokenizer.h"
#include "testing/temp_dir.h"

namespace garam::testing {

// A byte-level tokenizer.json: ids 0..255 are the bytes, then the joined tokens of `merges` (given in
// GPT-2's spelling, "Ġ" for the space), then the special tokens. BOS, when named, is put before a text.
Json byte_level_json(const std::vector<std::pair<std::string, std::string>>& merges,
                     const std::vector<std::string>& specials, const std::string& bos = "");

// A SentencePiece-style tokenizer.json with byte fallback: <unk> <s> </s>, 256 byte tokens, then `pieces`
// with the merges given.
Json sentencepiece_json(const std::vector<std::string>& pieces,
                        const std::vector<std::pair<std::string, std::string>>& merges);

// The document with `key` of it, or of its model, replaced.
Json with(Json document, std::string_view key, Json value);
Json with_model(const Json& document, std::string_view key, Json value);
// An entry of added_tokens with the flags named ("lstrip") set.
Json added_token(const std::string& content, std::int64_t id,
                 const std::vector<std::string>& flags);

std::unique_ptr<Tokenizer> load(const Json& tokenizer, const Json& config = Json());
// The message of the Error that loading ends with; empty when it loads.
std::string load_error(const Json& tokenizer, const Json& config = Json());

// Pseudo-random text of all planes, with spaces, digits, marks and line ends.
std::string random_text(std::uint64_t seed, std::size_t characters);

}  // namespace garam::testing
