// The "decoder" of a tokenizer.json: tokens back to text.
//
// Supported: Sequence, ByteLevel, Replace (string or regular expression), ByteFallback, Fuse, Strip,
// Metaspace, BPEDecoder, WordPiece.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "garam/core/json.h"
#include "garam/text/pattern.h"

namespace garam {

class TokenDecoder {
  public:
    // `description` may be null: tokens are joined with a space, as the reference does it. Throws Error
    // naming what is not supported.
    TokenDecoder(const Json* description, const std::string& source);

    // Always valid UTF-8, given tokens that are.
    std::string decode(std::vector<std::string> tokens) const;

  private:
    enum class Kind {
        byte_level,
        replace,
        replace_matches,
        byte_fallback,
        fuse,
        strip,
        metaspace,
        end_of_word,
        word_piece
    };
    struct Step {
        Kind kind;
        std::string pattern;
        std::string content;
        std::size_t start = 0;
        std::size_t stop = 0;
        std::shared_ptr<const Pattern> expression = nullptr;  // replace_matches
        bool cleans_up = false;                               // word_piece
    };
    void add(const Json& description, const std::string& source);
    static void apply(const Step& step, std::vector<std::string>& tokens, std::size_t limit);

    std::vector<Step> steps_;
    bool joins_with_space_ = false;
};

}  // namespace garam
