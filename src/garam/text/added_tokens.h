// Tokens that are matched in the text itself before anything else happens to it: special tokens
// ("<|im_end|>") and what was added to a vocabulary after its training.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "garam/core/json.h"
#include "garam/text/tokenizer.h"

namespace garam {

struct AddedToken {
    std::int32_t id = 0;
    std::string content;
    bool special = false;
    bool single_word = false;  // only between characters that are no word characters
    bool lstrip = false;       // takes the white space before it with it
    bool rstrip = false;
    bool normalized = false;  // is matched in the normalised text

    static constexpr std::size_t kMaxBytes = 1024;  // matching is O(text x longest token)
    // {"content": .., "lstrip": .., ...}. Throws Error "<where>: ...".
    static AddedToken parse(const Json& description, std::int64_t id, const std::string& where);
};

std::set<std::string, std::less<>> contents_of(const std::vector<AddedToken>& tokens);

// Finds tokens in a text: the leftmost match counts, of those the longest.
class AddedTokenMatcher {
  public:
    // `content` of token i as it is to be found (for normalised ones: normalised). Empty ones are never
    // found.
    void add(const AddedToken& token, std::string_view content);
    bool empty() const { return tokens_.empty(); }

    struct Part {
        ByteSpan span;
        std::optional<std::int32_t> id;  // absent: text between tokens
    };
    // Cuts `text` into parts, none of them empty, in place of what is in `parts`. Without parse_special,
    // special tokens are text.
    void split(std::string_view text, bool parse_special, std::vector<Part>& parts) const;

  private:
    struct Node {
        std::vector<std::pair<char, std::int32_t>> children;  // sorted by byte
        std::int32_t token = -1;
    };
    std::int32_t child(std::int32_t node, char byte) const;

    std::size_t next_beginning(std::string_view text, std::size_t at) const;

    std::vector<AddedToken> tokens_;
    std::array<bool, 256> first_bytes_{};
    std::vector<bool> first_pairs_ = std::vector<bool>(65536);  // of the first two bytes
    std::vector<Node> nodes_ = std::vector<Node>(1);
};

}  // namespace garam
