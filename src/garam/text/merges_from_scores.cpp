#include "garam/text/merges_from_scores.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "garam/text/unicode.h"

namespace garam {

Json::Array merges_from_scores(std::span<const ScoredPiece> pieces) {
    constexpr std::size_t kLongestPiece = 256;  // bytes; a merge is tried at each of its characters
    std::unordered_map<std::string_view, double> known;
    for (const ScoredPiece& piece : pieces)
        if (piece.joined) known.emplace(*piece.text, piece.score);
    struct Merge {
        double score;
        std::string_view left;
        std::string_view right;
    };
    std::vector<Merge> merges;
    for (const ScoredPiece& piece : pieces) {
        if (!piece.made || piece.text->size() > kLongestPiece) continue;
        const std::string_view text = *piece.text;
        const std::size_t first = merges.size();
        for (std::size_t cut = utf8_length(text.empty() ? '\0' : text[0]); cut < text.size();
             cut += utf8_length(text[cut])) {
            const std::string_view left = text.substr(0, cut);
            const std::string_view right = text.substr(cut);
            if (known.contains(left) && known.contains(right))
                merges.push_back({piece.score, left, right});
        }
        std::stable_sort(merges.begin() + static_cast<std::ptrdiff_t>(first), merges.end(),
                         [&](const Merge& a, const Merge& b) {
                             return std::pair(known.at(a.left), known.at(a.right)) >
                                    std::pair(known.at(b.left), known.at(b.right));
                         });
    }
    std::stable_sort(merges.begin(), merges.end(),
                     [](const Merge& a, const Merge& b) { return a.score > b.score; });
    Json::Array out;
    out.reserve(merges.size());
    for (const Merge& merge : merges)
        out.push_back(Json::Array{merge.left, merge.right});
    return out;
}

}  // namespace garam
