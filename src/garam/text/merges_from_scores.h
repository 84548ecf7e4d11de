// The merges that SentencePiece's byte-pair encoding means by the scores of its pieces.
#pragma once

#include <span>
#include <string>

#include "garam/core/json.h"

namespace garam {

struct ScoredPiece {
    const std::string* text = nullptr;
    double score = 0;
    bool made = false;    // merges make it
    bool joined = false;  // merges join it to others
};

// Pairs of parts, in the order of the score of what they make; of several ways to the same piece the one
// from likelier parts first. Pieces of more than 256 bytes are not made.
Json::Array merges_from_scores(std::span<const ScoredPiece> pieces);

}  // namespace garam
