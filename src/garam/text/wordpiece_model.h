// WordPiece (Schuster and Nakajima 2012, as BERT uses it): a word is cut into the longest pieces of the
// vocabulary from its left end; pieces behind the first begin with a prefix ("##"). A word that cannot be
// cut so is one unknown token.
#pragma once

#include <string>
#include <vector>

#include "garam/text/piece_model.h"

namespace garam {

class WordPieceModel final : public PieceModel {
  public:
    // Throws Error naming what is missing.
    WordPieceModel(const Json& model, const Vocabulary& vocabulary, const std::string& source);

    void encode(std::string_view piece, std::vector<BpeModel::Token>& out) const override;

  private:
    const Vocabulary& vocabulary_;
    std::int32_t unknown_ = 0;
    std::string prefix_ = "##";
    std::size_t longest_word_ = 100;  // characters
    std::vector<bool> is_size_;       // whether a token has so many bytes, up to the longest
};

}  // namespace garam
