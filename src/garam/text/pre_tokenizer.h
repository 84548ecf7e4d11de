// The "pre_tokenizer" of a tokenizer.json: how a normalised text is cut into the pieces within which
// merges happen.
//
// Supported: Sequence, Split (regular expression or string; Isolated, Removed, MergedWithPrevious,
// MergedWithNext, Contiguous), Digits, ByteLevel, Metaspace, and those of text/character_split.h.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "garam/core/json.h"
#include "garam/text/aligned_text.h"
#include "garam/text/pattern.h"

namespace garam {

struct PieceList {
    AlignedText text;
    std::vector<ByteSpan> pieces;  // of text, in order, none empty
};

class PreTokenizer {
  public:
    // `description` may be null: each text is one piece. Throws Error naming what is not supported.
    PreTokenizer(const Json* description, const std::string& source);

    // Whether pieces are spelled as bytes (ByteLevel) when they are looked up in the vocabulary.
    bool byte_level() const { return byte_level_; }
    // Lets ByteLevel spell them itself instead, for steps and models that work on the spelling.
    void spell_bytes();
    // `at_start`: whether the text begins where the whole input begins.
    PieceList apply(AlignedText text, bool at_start) const;

    // Whether pieces lie end to end over the unchanged text, whatever the text is: then it can be cut as it is.
    bool only_cuts() const { return only_cuts_; }
    // What apply gives where only_cuts(): the pieces of `text`, in place of what is in `pieces`.
    void cut(std::string_view text, std::vector<ByteSpan>& pieces) const;

  private:
    enum class Behavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };
    enum class Prefix { never, first, always };
    struct Step {
        std::optional<Pattern> pattern;                               // split
        std::string literal;                                          // split at a string
        std::function<std::vector<ByteSpan>(std::string_view)> find;  // split at what it finds
        bool invert = false;
        Behavior behavior = Behavior::isolated;
        std::string replacement;  // Metaspace: what a space becomes
        std::string prefix_text;  // put before a piece that does not begin with it
        Prefix prefix = Prefix::never;
        bool spells_bytes = false;  // after the split
    };
    static Behavior behavior_of(const std::string& name, const std::string& where);
    static void spell(PieceList& list);
    void add(const Json& description, const std::string& source);
    static void split(std::string_view text, std::vector<ByteSpan>& pieces, const Step& step);
    static void rewrite(PieceList& list, const Step& step, bool at_start);

    std::vector<Step> steps_;
    bool byte_level_ = false;
    bool only_cuts_ = true;
    // Does all steps in one pass, if there is such a scanner.
    KnownPattern scanner_ = KnownPattern::none;
};

}  // namespace garam
