#include "garam/text/unigram_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "garam/core/error.h"
#include "garam/text/unicode.h"

namespace garam {
namespace {

constexpr double kUnknownPenalty = 10.0;  // SentencePiece's kUnkPenalty

}  // namespace

UnigramModel::UnigramModel(const Json& model, const Vocabulary& vocabulary,
                           const std::string& source)
    : vocabulary_(vocabulary), source_(source) {
    const std::string where = source + ": model";
    double lowest = std::numeric_limits<double>::infinity();
    for (const Json& entry : model.at("vocab", where).array(where + ".vocab")) {
        const double score = entry.array(where + ".vocab").at(1).number(where + ".vocab");
        if (!std::isfinite(score)) throw Error(where + ".vocab: a score is not finite");
        scores_.push_back(score);
        lowest = std::min(lowest, score);
    }
    unknown_score_ = lowest - kUnknownPenalty;
    if (const Json* unknown = model.find("unk_id"); unknown != nullptr && !unknown->is_null()) {
        const std::int64_t id = unknown->integer(where + ".unk_id");
        if (id < 0 || id >= vocabulary.size())
            throw Error(where + ".unk_id is " + std::to_string(id) + ", but there are " +
                        std::to_string(vocabulary.size()) + " pieces");
        unknown_ = static_cast<std::int32_t>(id);
    }
    if (const Json* fallback = model.find("byte_fallback");
        fallback != nullptr && !fallback->is_null())
        byte_fallback_ = fallback->boolean(where + ".byte_fallback");
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    for (std::size_t byte = 0; byte < 256; ++byte) {
        const std::string token =
            std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + ">";
        byte_ids_[byte] = vocabulary.find(token).value_or(-1);
    }
    build_trie(vocabulary);
}

void UnigramModel::build_trie(const Vocabulary& vocabulary) {
    std::vector<std::int32_t> order;
    for (std::int32_t id = 0; id < vocabulary.size(); ++id)
        if (!vocabulary.token(id).empty()) order.push_back(id);
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        return vocabulary.token(a) < vocabulary.token(b);
    });
    // Each range of sorted pieces with a common beginning is a node; its children are made together.
    struct Range {
        std::size_t begin;
        std::size_t end;
        std::size_t depth;
        std::size_t node;
    };
    nodes_.emplace_back();
    std::vector<Range> open{{0, order.size(), 0, 0}};
    while (!open.empty()) {
        Range range = open.back();
        open.pop_back();
        if (range.begin < range.end && vocabulary.token(order[range.begin]).size() == range.depth)
            nodes_[range.node].id = order[range.begin++];
        const std::size_t first = nodes_.size();
        for (std::size_t i = range.begin; i < range.end;) {
            const char byte = vocabulary.token(order[i])[range.depth];
            std::size_t end = i;
            while (end < range.end && vocabulary.token(order[end])[range.depth] == byte)
                ++end;
            open.push_back({i, end, range.depth + 1, nodes_.size()});
            nodes_.push_back({0, -1, 0, static_cast<unsigned char>(byte)});
            i = end;
        }
        nodes_[range.node].first_child = static_cast<std::int32_t>(first);
        nodes_[range.node].num_children = static_cast<std::uint16_t>(nodes_.size() - first);
    }
    roots_.fill(-1);
    for (std::int32_t i = 0; i < nodes_[0].num_children; ++i) {
        const std::int32_t at = nodes_[0].first_child + i;
        roots_[nodes_[static_cast<std::size_t>(at)].byte] = at;
    }
}

const UnigramModel::Node* UnigramModel::child(const Node& node, unsigned char byte) const {
    const Node* first = nodes_.data() + node.first_child;
    const Node* last = first + node.num_children;
    const Node* found = std::lower_bound(
        first, last, byte, [](const Node& entry, unsigned char b) { return entry.byte < b; });
    return found != last && found->byte == byte ? found : nullptr;
}

void UnigramModel::encode(std::string_view piece, std::vector<BpeModel::Token>& out) const {
    GARAM_CHECK(piece.size() < std::size_t{1} << 31, "a piece of 2 GiB");
    constexpr std::uint32_t kNowhere = std::numeric_limits<std::uint32_t>::max();
    struct Best {  // the best way that ends here
        double score = 0;
        std::uint32_t begin = kNowhere;  // of its last piece
        std::int32_t id = 0;
    };
    // Kept by the thread unless it is large: allocating costs as much as a word's search.
    constexpr std::size_t kKeptBytes = 1 << 16;
    thread_local std::vector<Best> kept;
    std::vector<Best> own;
    std::vector<Best>& best = piece.size() < kKeptBytes ? kept : own;
    best.assign(piece.size() + 1, {});
    for (std::size_t begin = 0; begin < piece.size();) {
        const double so_far = best[begin].score;
        const std::size_t length = utf8_length(piece[begin]);
        bool spelled = false;
        const auto offer = [&](std::size_t end, double score, std::int32_t id) {
            Best& target = best[end];
            if (target.begin == kNowhere || score > target.score)
                target = {score, static_cast<std::uint32_t>(begin), id};
        };
        const std::int32_t root = roots_[static_cast<unsigned char>(piece[begin])];
        const Node* node = root < 0 ? nullptr : &nodes_[static_cast<std::size_t>(root)];
        for (std::size_t end = begin + 1; node != nullptr; ++end) {
            if (node->id >= 0) {
                offer(end, scores_[static_cast<std::size_t>(node->id)] + so_far, node->id);
                spelled = spelled || end - begin == length;
            }
            if (end == piece.size()) break;
            node = child(*node, static_cast<unsigned char>(piece[end]));
        }
        if (!spelled) {
            // A better way to that place needs no unknown token; the reference asks for one in any case
            // where it would be the best.
            const std::size_t end = begin + length;
            if (best[end].begin == kNowhere || unknown_score_ + so_far > best[end].score) {
                if (!unknown_)
                    throw Error(source_ + ": the vocabulary lacks the character \"" +
                                std::string(piece.substr(begin, length)) +
                                "\", and the model has no unk_id for such");
                offer(end, unknown_score_ + so_far, *unknown_);
            }
        }
        begin += length;
    }
    // Backwards along the best way, the pieces then turned round.
    std::vector<BpeModel::Token> pieces;
    for (auto end = static_cast<std::uint32_t>(piece.size()); end > 0;) {
        const Best& here = best[end];
        const bool joins =
            unknown_ && here.id == *unknown_ && !pieces.empty() && pieces.back().id == *unknown_;
        if (joins) {
            pieces.back().begin = here.begin;
        } else {
            pieces.push_back({here.id, here.begin, end});
        }
        end = here.begin;
    }
    for (auto part = pieces.rbegin(); part != pieces.rend(); ++part) {
        if (unknown_ && part->id == *unknown_) {
            append_unknown(piece, *part, out);
        } else {
            out.push_back(*part);
        }
    }
}

void UnigramModel::append_unknown(std::string_view piece, const BpeModel::Token& token,
                                  std::vector<BpeModel::Token>& out) const {
    const std::string_view part = piece.substr(token.begin, token.end - token.begin);
    // Unknown characters that were joined may be a piece after all.
    if (const auto id = vocabulary_.find(part);
        id && static_cast<std::size_t>(*id) < scores_.size()) {
        out.push_back({*id, token.begin, token.end});
        return;
    }
    const auto has_token = [&](char byte) {
        return byte_ids_[static_cast<unsigned char>(byte)] >= 0;
    };
    if (byte_fallback_ && std::all_of(part.begin(), part.end(), has_token)) {
        for (std::uint32_t i = token.begin; i < token.end; ++i)
            out.push_back({byte_ids_[static_cast<unsigned char>(piece[i])], i, i + 1});
        return;
    }
    out.push_back(token);
}

}  // namespace garam
