// SentencePiece's precompiled_charsmap (normalizer_spec): a double-array trie (Aoe 1989, darts-clone's units)
// of UTF-8 strings and the strings that replace them, as the "Precompiled" normalizer of a tokenizer.json
// applies it.
//
// As in the reference a whole grapheme cluster of less than 6 bytes is replaced where any beginning of it is
// in the trie (the shortest counts); else each of its characters by itself. Files are hostile: every index is
// checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "garam/text/aligned_text.h"

namespace garam {

class PrecompiledCharsmap {
  public:
    // The blob: 4 bytes with the size of the trie in bytes, the trie, the replacements with a zero byte
    // behind each. Throws Error "<where>: ...".
    PrecompiledCharsmap(std::string_view blob, const std::string& where);

    AlignedText apply(const AlignedText& text) const;
    // What replaces `chunk`, or absent. Views into this.
    std::optional<std::string_view> find(std::string_view chunk) const;

  private:
    std::vector<std::uint32_t> units_;
    std::string replacements_;
};

// Bytes of base64 text; absent when it is none.
std::optional<std::string> from_base64(std::string_view text);
std::string to_base64(std::string_view bytes);

}  // namespace garam
