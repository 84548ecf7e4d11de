// What turns one piece of a pre-tokenised text into tokens, for models other than byte-pair encoding.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "garam/core/json.h"
#include "garam/text/bpe_model.h"
#include "garam/text/vocabulary.h"

namespace garam {

class PieceModel {
  public:
    virtual ~PieceModel() = default;
    // Appends the tokens of `piece` (less than 2 GiB) to `out`. Thread-safe.
    virtual void encode(std::string_view piece, std::vector<BpeModel::Token>& out) const = 0;
};

// Reads the "vocab" of a tokenizer.json's model of any kind. Throws Error "<source>: model.vocab ...".
void read_model_vocabulary(const Json& model, const std::string& source, Vocabulary& vocabulary);

// The model of kind Unigram or WordPiece; null for BPE, which is BpeModel's. Throws Error naming any other
// kind. `vocabulary` was read from it and must outlive the model.
std::unique_ptr<PieceModel> make_piece_model(const Json& model, const Vocabulary& vocabulary,
                                             const std::string& source);

}  // namespace garam
