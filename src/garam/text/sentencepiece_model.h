// Reads a SentencePiece model (tokenizer.model): the protobuf of sentencepiece_model.proto, by our own reader
// of the wire format. Bounded: it never makes more than the file holds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace garam {

struct SentencePieceModel {
    enum class Type : std::int64_t { normal = 1, unknown, control, user_defined, unused, byte };
    struct Piece {
        std::string text;
        float score = 0;
        Type type = Type::normal;
    };
    enum class Kind : std::int64_t { unigram = 1, bpe, word, character };

    std::vector<Piece> pieces;
    // trainer_spec
    Kind kind = Kind::unigram;
    bool byte_fallback = false;
    bool treat_whitespace_as_suffix = false;
    std::int64_t unk_id = 0;
    std::int64_t bos_id = 1;
    std::int64_t eos_id = 2;
    std::int64_t pad_id = -1;
    // normalizer_spec
    std::string normalizer;            // its name: "nmt_nfkc", "identity"
    std::string precompiled_charsmap;  // see text/precompiled_charsmap.h
    bool add_dummy_prefix = true;
    bool remove_extra_whitespaces = true;
    bool escape_whitespaces = true;
};

// Throws Error "<source>: ..." for what is cut off or no such model.
SentencePieceModel parse_sentencepiece_model(std::string_view bytes, const std::string& source);
SentencePieceModel read_sentencepiece_model(const std::filesystem::path& file);

}  // namespace garam
