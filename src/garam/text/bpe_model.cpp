#include "garam/text/bpe_model.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <queue>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "garam/core/error.h"
#include "garam/text/unicode.h"

namespace garam {

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

// (left id, right id) -> (rank, joined id): open addressing, at most half full.
struct BpeModel::Merges {
    struct Slot {
        std::uint64_t pair = kEmpty;
        std::int32_t rank = 0;
        std::int32_t joined = 0;
    };
    static constexpr std::uint64_t kEmpty = std::numeric_limits<std::uint64_t>::max();

    explicit Merges(std::size_t count) {
        std::size_t slots = 16;
        while (slots < 2 * count)
            slots *= 2;
        slots_.resize(slots);
    }
    static std::uint64_t key(std::int32_t left, std::int32_t right) {
        return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
               static_cast<std::uint32_t>(right);
    }
    std::size_t index(std::uint64_t pair) const {
        std::uint64_t mixed = pair * 0x9E3779B97F4A7C15u;
        mixed ^= mixed >> 32;
        std::size_t at = mixed & (slots_.size() - 1);
        while (slots_[at].pair != pair && slots_[at].pair != kEmpty)
            at = (at + 1) & (slots_.size() - 1);
        return at;
    }
    void set(std::int32_t left, std::int32_t right, std::int32_t rank, std::int32_t joined) {
        const std::uint64_t pair = key(left, right);
        slots_[index(pair)] = {pair, rank, joined};
    }
    const Slot* find(std::int32_t left, std::int32_t right) const {
        const Slot& slot = slots_[index(key(left, right))];
        return slot.pair == kEmpty ? nullptr : &slot;
    }

    std::vector<Slot> slots_;
};

// Tokens of short pieces already seen: words repeat. Never grows beyond its limit.
class BpeModel::Cache {
  public:
    static constexpr std::size_t kMaxPieceBytes = 64;
    static constexpr std::size_t kMaxPieces = 1 << 16;

    bool find(std::string_view piece, std::vector<Token>& out) const {
        const std::shared_lock lock(mutex_);
        const auto found = pieces_.find(piece);
        if (found == pieces_.end()) return false;
        out.insert(out.end(), found->second.begin(), found->second.end());
        return true;
    }
    void put(std::string_view piece, std::vector<Token>&& tokens) {
        const std::unique_lock lock(mutex_);
        if (pieces_.size() < kMaxPieces) pieces_.try_emplace(std::string(piece), std::move(tokens));
    }

  private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const {
            return std::hash<std::string_view>{}(text);
        }
    };
    mutable std::shared_mutex mutex_;
    std::unordered_map<std::string, std::vector<Token>, Hash, std::equal_to<>> pieces_;
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
    : vocabulary_(vocabulary), byte_level_(byte_level) {
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
    if (merges.size() > static_cast<std::size_t>(4 * Vocabulary::kMaxIds))
        throw Error(where + ": " + std::to_string(merges.size()) + " merges are too many");
    merges_ = std::make_unique<Merges>(merges.size());
    std::string joined;
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
        const std::string here = where + ".merges[" + std::to_string(rank) + "]";
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
        merges_->set(left_id, right_id, static_cast<std::int32_t>(rank), id_of(joined));
    }
    cache_ = std::make_unique<Cache>();
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
        std::int32_t rank;
        std::uint32_t at;
        std::int32_t joined;
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
        const auto* merge = merges_->find(tokens[left].id, tokens[links[left].next].id);
        if (merge != nullptr) queue.push({merge->rank, left, merge->joined});
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
        const auto* merge = merges_->find(left.id, tokens[next].id);
        if (merge == nullptr || merge->joined != best.joined) continue;
        left.id = best.joined;
        left.end = tokens[next].end;
        tokens[next].id = kGone;
        links[best.at].next = links[next].next;
        if (links[next].next != kNone) links[links[next].next].previous = best.at;
        consider(links[best.at].previous);
        consider(best.at);
    }
    std::erase_if(tokens, [](const Token& token) { return token.id == kGone; });
}

void BpeModel::encode(std::string_view piece, std::vector<Token>& out) const {
    GARAM_CHECK(piece.size() < std::size_t{1} << 31, "a piece of 2 GiB");
    const bool cached = piece.size() <= Cache::kMaxPieceBytes;
    if (cached && cache_->find(piece, out)) return;
    std::vector<Token> tokens;
    if (ignore_merges_) {
        std::string spelled;
        if (byte_level_) {
            for (const char c : piece)
                append_utf8(spelled, byte_characters()[static_cast<unsigned char>(c)]);
        }
        const auto whole = vocabulary_.find(byte_level_ ? std::string_view(spelled) : piece);
        if (whole) tokens.push_back({*whole, 0, static_cast<std::uint32_t>(piece.size())});
    }
    if (tokens.empty()) {
        if (byte_level_) {
            start_as_bytes(piece, tokens);
        } else {
            start_as_characters(piece, tokens);
        }
        merge(tokens);
    }
    out.insert(out.end(), tokens.begin(), tokens.end());
    if (cached) cache_->put(piece, std::move(tokens));
}

}  // namespace garam
