// Byte-pair encoding of one piece (Sennrich et al. 2016, as in the reference's BPE model): the piece
// begins as characters, or as bytes; the neighbouring pair with the lowest merge rank is joined, leftmost
// first, until none is left.
//
// A piece is cut where no token of the vocabulary reaches across: what is joined on one side does not depend
// on the other. Short parts are remembered (WordCache); a part without a cut takes O(n log n) in its bytes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "garam/core/json.h"
#include "garam/text/tokenizer.h"
#include "garam/text/vocabulary.h"

namespace garam {

// GPT-2's spelling of bytes as printable characters: 'Ġ' for the space, and so on.
const std::array<char32_t, 256>& byte_characters();
// The byte that a character spells, or -1.
int byte_of_character(char32_t character);

// Both sides of an entry of "merges": "left right" or ["left", "right"]. Throws Error beginning with `where`.
std::pair<std::string_view, std::string_view> parts_of_merge(const Json& merge,
                                                             const std::string& where);

class BpeModel {
  public:
    struct Token {
        std::int32_t id;
        std::uint32_t begin;  // bytes of the piece
        std::uint32_t end;
    };

    // `model` is the "model" of a tokenizer.json, whose vocabulary was already read into `vocabulary`
    // (which must outlive this). byte_level: pieces are bytes, spelled with byte_characters().
    BpeModel(const Json& model, bool byte_level, const Vocabulary& vocabulary,
             const std::string& source);
    ~BpeModel();
    // Whether tokens behind the first of a word, or the last one, are spelled with an affix ("##", "</w>").
    static bool has_affixes(const Json& model);
    BpeModel(const BpeModel&) = delete;
    BpeModel& operator=(const BpeModel&) = delete;

    // Appends the tokens of `piece` (less than 2 GiB) to `out`. Characters that the vocabulary can not spell become the
    // unknown token, or vanish where it has none, as in the reference. Thread-safe.
    void encode(std::string_view piece, std::vector<Token>& out) const;

    // Whether the tokens of any piece lie end to end over its bytes, each as long as byte_length() says, since
    // the vocabulary can spell all bytes. Then the ids alone say where the tokens are.
    bool covers_all() const { return covers_all_; }
    std::uint32_t byte_length(std::int32_t id) const {
        return byte_lengths_[static_cast<std::size_t>(id)];
    }
    // Where covers_all(): appends the ids of the tokens of these pieces of `text`, which lie end to end.
    // Thread-safe.
    void encode_ids(std::string_view text, std::span<const ByteSpan> pieces,
                    std::vector<std::int32_t>& out) const;

  private:
    class Merges;

    std::optional<std::int32_t> whole_token(std::string_view piece) const;
    std::int32_t* encode_whole(std::string_view text, ByteSpan piece, std::int32_t* out) const;
    std::int32_t* encode_part(std::string_view text, ByteSpan part, std::uint32_t number,
                              std::int32_t* out) const;
    std::size_t merge_anew(std::string_view part, std::int32_t* out) const;
    std::size_t merge_short(std::int32_t* ids, std::uint32_t* ranks, std::size_t count) const;
    void describe_tokens();
    bool may_cut(std::string_view text, std::size_t at) const;
    void start_as_bytes(std::string_view piece, std::vector<Token>& out) const;
    void start_as_characters(std::string_view piece, std::vector<Token>& out) const;
    void merge(std::vector<Token>& tokens) const;

    const Vocabulary& vocabulary_;
    bool byte_level_;
    bool byte_fallback_ = false;
    bool fuse_unknown_ = false;
    bool ignore_merges_ = false;
    std::string continuing_prefix_;  // of characters behind the first of a piece
    std::string end_suffix_;         // of the last one
    std::optional<std::int32_t> unknown_;
    std::array<std::int32_t, 256> byte_ids_;  // of the bytes' own tokens, -1 where there is none
    bool covers_all_ = false;
    std::vector<std::uint32_t> byte_lengths_;  // of the text that a token stands for, by id
    std::size_t longest_token_ = 0;            // bytes
    std::unique_ptr<Merges> merges_;
    std::vector<bool> neighbours_;          // pairs of bytes that stand side by side in some token
    std::array<bool, 256> before_space_{};  // bytes that stand before "▁" in some token
    // In WordCache: of pieces, and of parts of them, which differ where whole pieces are looked up.
    std::uint32_t number_;
    std::uint32_t number_of_parts_;
};

}  // namespace garam
