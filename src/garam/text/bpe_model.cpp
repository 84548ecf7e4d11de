#include "garam/text/bpe_model.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <string>

#include "garam/core/error.h"
#include "garam/text/unicode.h"
#include "garam/text/word_cache.h"

namespace garam {
namespace {

constexpr std::string_view kSpace = "\u2581";  // how SentencePiece writes a space

}  // namespace

const std::array<char32_t, 256>& byte_characters() {
    static const auto characters = [] {
        std::array<char32_t, 256> made{};
        char32_t next = 256;
        for (char32_t byte = 0; byte < 256; ++byte) {
            const bool printable =
                (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
            made[byte] = printable ? byte : next++;
        }
        return made;
    }();
    return characters;
}

int byte_of_character(char32_t character) {
    static const auto bytes = [] {
        std::array<int, 512> made;
        made.fill(-1);
        for (int byte = 0; byte < 256; ++byte)
            made[byte_characters()[static_cast<std::size_t>(byte)]] = byte;
        return made;
    }();
    return character < bytes.size() ? bytes[character] : -1;
}

// (left id, right id) -> rank, and rank -> joined id. Open addressing, at most two thirds full; pair and rank
// share one number, so that a large vocabulary's table stays near the processor.
class BpeModel::Merges {
  public:
    static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
    static constexpr std::size_t kMaxCount = std::size_t{1} << 22;

    explicit Merges(std::size_t count) : joined_(count), byte_pairs_(256 * 256, kNone) {
        std::size_t slots = 16;
        while (2 * slots < 3 * count)
            slots *= 2;
        slots_.resize(slots, kEmpty);
    }
    void set(std::int32_t left, std::int32_t right, std::uint32_t rank, std::int32_t joined) {
        const std::uint64_t pair = key(left, right);
        slots_[index(pair)] = pair << kRankBits | rank;
        joined_[rank] = joined;
    }
    // Rank of a pair, or kNone.
    std::uint32_t rank(std::int32_t left, std::int32_t right) const {
        const std::uint64_t slot = slots_[index(key(left, right))];
        return slot == kEmpty ? kNone : static_cast<std::uint32_t>(slot & kRankMask);
    }
    std::int32_t joined(std::uint32_t rank) const { return joined_[rank]; }

    // The same for the tokens of two bytes, with which each byte-level piece begins.
    void set_byte_pairs(const std::array<std::int32_t, 256>& ids) {
        for (std::size_t left = 0; left < 256; ++left)
            for (std::size_t right = 0; right < 256; ++right)
                byte_pairs_[left << 8 | right] = rank(ids[left], ids[right]);
    }
    std::uint32_t rank_of_bytes(unsigned char left, unsigned char right) const {
        return byte_pairs_[static_cast<std::size_t>(left) << 8 | right];
    }

  private:
    static constexpr int kIdBits = 20;
    static constexpr int kRankBits = 24;
    static constexpr std::uint64_t kRankMask = (std::uint64_t{1} << kRankBits) - 1;
    static constexpr std::uint64_t kEmpty = std::numeric_limits<std::uint64_t>::max();
    static_assert(Vocabulary::kMaxIds <= std::int64_t{1} << kIdBits);
    static_assert(kMaxCount < kRankMask);

    static std::uint64_t key(std::int32_t left, std::int32_t right) {
        return static_cast<std::uint64_t>(left) << kIdBits | static_cast<std::uint64_t>(right);
    }
    std::size_t index(std::uint64_t pair) const {
        std::uint64_t mixed = pair * 0x9E3779B97F4A7C15u;
        mixed ^= mixed >> 32;
        std::size_t at = mixed & (slots_.size() - 1);
        while (slots_[at] >> kRankBits != pair && slots_[at] != kEmpty)
            at = (at + 1) & (slots_.size() - 1);
        return at;
    }

    std::vector<std::uint64_t> slots_;
    std::vector<std::int32_t> joined_;
    std::vector<std::uint32_t> byte_pairs_;
};

namespace {

bool flag(const Json& model, std::string_view key, const std::string& where) {
    const Json* value = model.find(key);
    return value != nullptr && !value->is_null() && value->boolean(where + "." + std::string(key));
}

std::string text_or_empty(const Json& model, std::string_view key, const std::string& where) {
    const Json* value = model.find(key);
    return value == nullptr || value->is_null() ? std::string()
                                                : value->string(where + "." + std::string(key));
}

std::string byte_token(unsigned byte) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    return std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + ">";
}

}  // namespace

std::pair<std::string_view, std::string_view> parts_of_merge(const Json& merge,
                                                             const std::string& where) {
    if (merge.is_array()) {
        const Json::Array& parts = merge.array();
        if (parts.size() != 2) throw Error(where + ": not a pair");
        return {parts[0].string(where), parts[1].string(where)};
    }
    const std::string_view line = merge.string(where);
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
        throw Error(where + ": \"" + std::string(line) +
                    "\" is not two tokens with a space between");
    return {line.substr(0, space), line.substr(space + 1)};
}

BpeModel::BpeModel(const Json& model, bool byte_level, const Vocabulary& vocabulary,
                   const std::string& source)
    : vocabulary_(vocabulary), byte_level_(byte_level), neighbours_(256 * 256) {
    const std::string where = source + ": model";
    if (const std::string type = text_or_empty(model, "type", where);
        type != "BPE" && !type.empty())
        throw Error(where + " of type \"" + type + "\" is not supported; supported is BPE");
    if (const Json* dropout = model.find("dropout");
        dropout != nullptr && !dropout->is_null() && dropout->number(where + ".dropout") != 0)
        throw Error(where + ".dropout is not supported: tokens would be another each time");
    continuing_prefix_ = text_or_empty(model, "continuing_subword_prefix", where);
    end_suffix_ = text_or_empty(model, "end_of_word_suffix", where);
    byte_fallback_ = flag(model, "byte_fallback", where);
    fuse_unknown_ = flag(model, "fuse_unk", where);
    ignore_merges_ = flag(model, "ignore_merges", where);
    if (const std::string unknown = text_or_empty(model, "unk_token", where); !unknown.empty()) {
        unknown_ = vocabulary.find(unknown);
        if (!unknown_)
            throw Error(where + ": the unk_token \"" + unknown + "\" is not in the vocabulary");
    }
    for (unsigned byte = 0; byte < 256; ++byte) {
        std::string spelled;
        if (byte_level_) {
            append_utf8(spelled, byte_characters()[byte]);
        } else {
            spelled = byte_token(byte);
        }
        byte_ids_[byte] = vocabulary.find(spelled).value_or(-1);
    }

    const Json::Array& merges = model.at("merges", where).array(where + ".merges");
    if (merges.size() > Merges::kMaxCount)
        throw Error(where + ": " + std::to_string(merges.size()) + " merges are too many");
    merges_ = std::make_unique<Merges>(merges.size());
    // Whether tokens of bytes take part in merges: then they do not always stand for their byte.
    bool joins_bytes = false;
    const auto is_byte_token = [&](std::int32_t id) {
        return std::find(byte_ids_.begin(), byte_ids_.end(), id) != byte_ids_.end();
    };
    std::string joined;
    const std::string list = where + ".merges[";
    std::string here;
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
        here.assign(list).append(std::to_string(rank)).append("]");
        const auto [left, right] = parts_of_merge(merges[rank], here);
        joined.assign(left);
        if (right.size() < continuing_prefix_.size())
            throw Error(here + ": \"" + std::string(right) + "\" lacks the prefix \"" +
                        continuing_prefix_ + "\"");
        joined += right.substr(continuing_prefix_.size());
        const auto id_of = [&](std::string_view token) {
            const auto id = vocabulary.find(token);
            if (!id)
                throw Error(here + ": token \"" + std::string(token) +
                            "\" is not in the vocabulary");
            return *id;
        };
        const std::int32_t left_id = id_of(left);
        const std::int32_t right_id = id_of(right);
        const std::int32_t joined_id = id_of(joined);
        merges_->set(left_id, right_id, static_cast<std::uint32_t>(rank), joined_id);
        if (!byte_level_ && joined.find("<0x") != std::string::npos)
            joins_bytes = joins_bytes || is_byte_token(left_id) || is_byte_token(right_id) ||
                          is_byte_token(joined_id);
    }
    const bool all_bytes =
        std::all_of(byte_ids_.begin(), byte_ids_.end(), [](std::int32_t id) { return id >= 0; });
    const bool affixes = !continuing_prefix_.empty() || !end_suffix_.empty();
    covers_all_ = all_bytes && !affixes &&
                  (byte_level_ || (byte_fallback_ && !joins_bytes && !ignore_merges_));
    if (covers_all_) describe_tokens();
    number_ = WordCache::new_model();
    number_of_parts_ = ignore_merges_ ? WordCache::new_model() : number_;
}

// For vocabularies that can spell all bytes.
void BpeModel::describe_tokens() {
    if (byte_level_) merges_->set_byte_pairs(byte_ids_);
    byte_lengths_.resize(static_cast<std::size_t>(vocabulary_.size()));
    std::string bytes;
    for (std::size_t id = 0; id < byte_lengths_.size(); ++id) {
        const std::string& token = vocabulary_.token(static_cast<std::int32_t>(id));
        bytes.clear();
        if (byte_level_) {
            for (std::size_t at = 0; at < token.size();)
                bytes += static_cast<char>(byte_of_character(next_code_point(token, at)));
        } else {
            bytes = token;
        }
        byte_lengths_[id] = static_cast<std::uint32_t>(bytes.size());
        longest_token_ = std::max(longest_token_, bytes.size());
        for (std::size_t i = 1; i < bytes.size(); ++i)
            neighbours_[static_cast<std::size_t>(static_cast<unsigned char>(bytes[i - 1])) << 8 |
                        static_cast<unsigned char>(bytes[i])] = true;
        for (std::size_t at = bytes.find(kSpace, 1); at != std::string::npos;
             at = bytes.find(kSpace, at + 1))
            before_space_[static_cast<unsigned char>(bytes[at - 1])] = true;
    }
    if (byte_level_) return;
    for (const std::int32_t id : byte_ids_)
        byte_lengths_[static_cast<std::size_t>(id)] = 1;
}

// Whether no token has both the byte before `at` and what begins there.
bool BpeModel::may_cut(std::string_view text, std::size_t at) const {
    const auto before = static_cast<unsigned char>(text[at - 1]);
    const auto after = static_cast<unsigned char>(text[at]);
    if (!byte_level_ && is_utf8_continuation(text[at])) return false;
    if (!neighbours_[static_cast<std::size_t>(before) << 8 | after]) return true;
    if (byte_level_) return false;  // a token may hold the first byte of the space's mark alone
    return text[at] == kSpace[0] && !before_space_[before] &&
           text.substr(at, kSpace.size()) == kSpace;
}

BpeModel::~BpeModel() = default;

bool BpeModel::has_affixes(const Json& model) {
    return !text_or_empty(model, "continuing_subword_prefix", "model").empty() ||
           !text_or_empty(model, "end_of_word_suffix", "model").empty();
}

void BpeModel::start_as_bytes(std::string_view piece, std::vector<Token>& out) const {
    for (std::uint32_t at = 0; at < piece.size(); ++at) {
        const std::int32_t id = byte_ids_[static_cast<unsigned char>(piece[at])];
        if (id >= 0) {
            out.push_back({id, at, at + 1});
        } else if (unknown_) {
            if (fuse_unknown_ && !out.empty() && out.back().id == *unknown_) {
                out.back().end = at + 1;
            } else {
                out.push_back({*unknown_, at, at + 1});
            }
        }
    }
}

void BpeModel::start_as_characters(std::string_view piece, std::vector<Token>& out) const {
    bool after_unknown = false;
    const bool affixes = !continuing_prefix_.empty() || !end_suffix_.empty();
    std::string affixed;
    std::uint32_t end = 0;
    for (std::uint32_t at = 0; at < piece.size(); at = end) {
        end = at + static_cast<std::uint32_t>(utf8_length(piece[at]));
        std::string_view character = piece.substr(at, end - at);
        if (affixes) {
            affixed = at > 0 ? continuing_prefix_ : std::string();
            affixed += character;
            if (end == piece.size()) affixed += end_suffix_;
            character = affixed;
        }
        const auto spelled = [&](char byte) {
            return byte_ids_[static_cast<unsigned char>(byte)] >= 0;
        };
        if (const auto id = vocabulary_.find(character)) {
            out.push_back({*id, at, end});
            after_unknown = false;
        } else if (byte_fallback_ && std::all_of(character.begin(), character.end(), spelled)) {
            for (std::uint32_t i = 0; i < character.size(); ++i)  // an affix's bytes, too
                out.push_back({byte_ids_[static_cast<unsigned char>(character[i])],
                               std::min(at + i, end - 1), std::min(at + i + 1, end)});
            after_unknown = false;
        } else if (unknown_) {
            if (fuse_unknown_ && after_unknown) {
                out.back().end = end;
            } else {
                out.push_back({*unknown_, at, end});
            }
            after_unknown = true;
        }
    }
}

void BpeModel::merge(std::vector<Token>& tokens) const {
    if (tokens.size() < 2) return;
    const auto count = static_cast<std::uint32_t>(tokens.size());
    constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
    constexpr std::int32_t kGone = -1;
    // A doubly linked list of what is left; a joined pair lives on at its left end.
    struct Links {
        std::uint32_t previous;
        std::uint32_t next;
    };
    struct Candidate {
        std::uint32_t rank;
        std::uint32_t at;
        bool operator>(const Candidate& other) const {
            return rank != other.rank ? rank > other.rank : at > other.at;
        }
    };
    std::vector<Links> links(count);
    for (std::uint32_t i = 0; i < count; ++i)
        links[i] = {i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1};
    std::vector<Candidate> storage;
    storage.reserve(count);
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(
        std::greater<>{}, std::move(storage));
    const auto consider = [&](std::uint32_t left) {
        if (left == kNone || links[left].next == kNone) return;
        const std::uint32_t rank = merges_->rank(tokens[left].id, tokens[links[left].next].id);
        if (rank != Merges::kNone) queue.push({rank, left});
    };
    for (std::uint32_t i = 0; i + 1 < count; ++i)
        consider(i);
    while (!queue.empty()) {
        const Candidate best = queue.top();
        queue.pop();
        Token& left = tokens[best.at];
        const std::uint32_t next = links[best.at].next;
        // The pair may be gone or another one since it was queued.
        if (left.id == kGone || next == kNone) continue;
        if (merges_->rank(left.id, tokens[next].id) != best.rank) continue;
        left.id = merges_->joined(best.rank);
        left.end = tokens[next].end;
        tokens[next].id = kGone;
        links[best.at].next = links[next].next;
        if (links[next].next != kNone) links[links[next].next].previous = best.at;
        consider(links[best.at].previous);
        consider(best.at);
    }
    std::erase_if(tokens, [](const Token& token) { return token.id == kGone; });
}

// `ranks` holds those of the count - 1 pairs. Returns how many ids are left. For a short piece, looking
// through all pairs is faster than keeping them in order.
std::size_t BpeModel::merge_short(std::int32_t* ids, std::uint32_t* ranks,
                                  std::size_t count) const {
    while (count > 1) {
        std::size_t at = 0;
        std::uint32_t best = ranks[0];
        for (std::size_t i = 1; i + 1 < count; ++i) {
            if (ranks[i] < best) {
                best = ranks[i];
                at = i;
            }
        }
        if (best == Merges::kNone) break;
        ids[at] = merges_->joined(best);
        --count;
        for (std::size_t i = at + 1; i < count; ++i) {
            ids[i] = ids[i + 1];
            ranks[i - 1] = ranks[i];
        }
        if (at > 0) ranks[at - 1] = merges_->rank(ids[at - 1], ids[at]);
        if (at + 1 < count) ranks[at] = merges_->rank(ids[at], ids[at + 1]);
    }
    return count;
}

// With ignore_merges a piece that is a token is that token.
std::optional<std::int32_t> BpeModel::whole_token(std::string_view piece) const {
    if (!ignore_merges_ || (covers_all_ && piece.size() > longest_token_)) return std::nullopt;
    if (!byte_level_) return vocabulary_.find(piece);
    std::string spelled;
    for (const char c : piece)
        append_utf8(spelled, byte_characters()[static_cast<unsigned char>(c)]);
    return vocabulary_.find(spelled);
}

void BpeModel::encode(std::string_view piece, std::vector<Token>& out) const {
    GARAM_CHECK(piece.size() < std::size_t{1} << 31, "a piece of 2 GiB");
    if (covers_all_) {
        std::vector<std::int32_t> ids;
        const ByteSpan whole{0, piece.size()};
        encode_ids(piece, {&whole, 1}, ids);
        std::uint32_t at = 0;
        for (const std::int32_t id : ids) {
            out.push_back({id, at, at + byte_length(id)});
            at += byte_length(id);
        }
        return;
    }
    if (const auto whole = whole_token(piece)) {
        out.push_back({*whole, 0, static_cast<std::uint32_t>(piece.size())});
        return;
    }
    std::vector<Token> tokens;
    if (byte_level_) {
        start_as_bytes(piece, tokens);
    } else {
        start_as_characters(piece, tokens);
    }
    merge(tokens);
    out.insert(out.end(), tokens.begin(), tokens.end());
}

// Merges all of `part`; returns the number of tokens.
std::size_t BpeModel::merge_anew(std::string_view part, std::int32_t* out) const {
    constexpr std::size_t kShort = 64;
    std::array<std::uint32_t, kShort> ranks;
    if (byte_level_ && part.size() <= kShort) {
        for (std::size_t i = 0; i < part.size(); ++i) {
            const auto byte = static_cast<unsigned char>(part[i]);
            out[i] = byte_ids_[byte];
            if (i + 1 < part.size())
                ranks[i] = merges_->rank_of_bytes(byte, static_cast<unsigned char>(part[i + 1]));
        }
        return merge_short(out, ranks.data(), part.size());
    }
    std::vector<Token> tokens;
    if (byte_level_) {
        start_as_bytes(part, tokens);
    } else {
        start_as_characters(part, tokens);
    }
    if (tokens.size() > kShort) merge(tokens);
    for (std::size_t i = 0; i < tokens.size(); ++i)
        out[i] = tokens[i].id;
    if (tokens.size() > kShort || tokens.empty()) return tokens.size();
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
        ranks[i] = merges_->rank(out[i], out[i + 1]);
    return merge_short(out, ranks.data(), tokens.size());
}

// Writes the ids of what lies between two cuts; returns their end.
std::int32_t* BpeModel::encode_part(std::string_view text, ByteSpan part, std::uint32_t number,
                                    std::int32_t* out) const {
    const std::size_t size = part.end - part.begin;
    const std::string_view view = text.substr(part.begin, size);
    if (size > WordCache::kMaxBytes) return out + merge_anew(view, out);
    WordCache& cache = WordCache::of_this_thread();
    const WordCache::Key key = WordCache::key(number, text, part.begin, part.end);
    if (const WordCache::Entry* entry = cache.find(key)) {
        std::copy(entry->ids.begin(), entry->ids.end(), out);
        return out + WordCache::count(*entry);
    }
    const std::size_t count = merge_anew(view, out);
    cache.put(key, {out, count});
    return out + count;
}

// The same of a piece that was not found in the cache.
std::int32_t* BpeModel::encode_whole(std::string_view text, ByteSpan piece,
                                     std::int32_t* out) const {
    const std::string_view view = text.substr(piece.begin, piece.end - piece.begin);
    if (const auto whole = whole_token(view)) {
        *out = *whole;
        return out + 1;
    }
    if (view.size() <= WordCache::kMaxBytes) return out + merge_anew(view, out);
    std::size_t begin = piece.begin;
    for (std::size_t at = begin + 1; at < piece.end; ++at) {
        if (!may_cut(text, at)) continue;
        out = encode_part(text, {begin, at}, number_of_parts_, out);
        begin = at;
    }
    return encode_part(text, {begin, piece.end}, number_of_parts_, out);
}

void BpeModel::encode_ids(std::string_view text, std::span<const ByteSpan> pieces,
                          std::vector<std::int32_t>& out) const {
    GARAM_CHECK(covers_all_, "a vocabulary that cannot spell all bytes");
    WordCache& cache = WordCache::of_this_thread();
    // Written without a look at the end: a piece has at most one token a byte, and a remembered word is copied
    // with the places that it leaves free.
    constexpr std::size_t kPiecesAtOnce = 1024;
    while (!pieces.empty()) {
        const auto some = pieces.first(std::min(pieces.size(), kPiecesAtOnce));
        pieces = pieces.subspan(some.size());
        const std::size_t before = out.size();
        out.resize(before + some.back().end - some.front().begin + WordCache::kMaxTokens);
        std::int32_t* to = out.data() + before;
        for (const ByteSpan piece : some) {
            if (piece.end - piece.begin > WordCache::kMaxBytes) {
                to = encode_whole(text, piece, to);
                continue;
            }
            const WordCache::Key key = WordCache::key(number_, text, piece.begin, piece.end);
            if (const WordCache::Entry* entry = cache.find(key)) {
                std::copy(entry->ids.begin(), entry->ids.end(), to);
                to += WordCache::count(*entry);
                continue;
            }
            std::int32_t* const end = encode_whole(text, piece, to);
            cache.put(key, {to, end});
            to = end;
        }
        out.resize(static_cast<std::size_t>(to - out.data()));
    }
}

}  // namespace garam
