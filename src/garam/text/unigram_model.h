// Unigram language model of pieces (Kudo 2018, "Subword Regularization"), as T5, XLM-R and llm-jp use it:
// of all ways to cut a text into pieces of the vocabulary, the one with the largest sum of scores.
//
// Exactly as the reference does it: scores add up as double from left to right, a character that no piece
// spells costs the lowest score less 10, of equal sums the one found first (from the leftmost start) counts,
// and neighbouring unknown characters become one unknown token, or the tokens of their bytes. O(n x longest
// piece).
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "garam/text/piece_model.h"

namespace garam {

class UnigramModel final : public PieceModel {
  public:
    // Throws Error naming what is missing or no number.
    UnigramModel(const Json& model, const Vocabulary& vocabulary, const std::string& source);

    void encode(std::string_view piece, std::vector<BpeModel::Token>& out) const override;

  private:
    // A trie of bytes; the children of a node lie side by side, sorted.
    struct Node {
        std::int32_t first_child = 0;
        std::int32_t id = -1;  // of the piece that ends here
        std::uint16_t num_children = 0;
        unsigned char byte = 0;
    };
    void build_trie(const Vocabulary& vocabulary);
    const Node* child(const Node& node, unsigned char byte) const;
    void append_unknown(std::string_view piece, const BpeModel::Token& token,
                        std::vector<BpeModel::Token>& out) const;

    const Vocabulary& vocabulary_;
    std::string source_;
    std::vector<double> scores_;  // by id
    std::vector<Node> nodes_;
    std::array<std::int32_t, 256> roots_;  // children of the root, -1 where there is none
    double unknown_score_ = 0;
    std::optional<std::int32_t> unknown_;
    bool byte_fallback_ = false;
    std::array<std::int32_t, 256> byte_ids_;  // of "<0x41>" and so on, -1 where there is none
};

}  // namespace garam
