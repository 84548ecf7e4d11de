// The "normalizer" of a tokenizer.json: what is changed in a text before it is cut up, aligned with the
// original.
//
// Supported: Sequence, NFC, NFD, NFKC, NFKD, Prepend, Replace (string or regular expression), Lowercase,
// Strip, StripAccents, Nmt, Precompiled, BertNormalizer, ByteLevel.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "garam/core/json.h"
#include "garam/text/aligned_text.h"
#include "garam/text/pattern.h"
#include "garam/text/precompiled_charsmap.h"
#include "garam/text/unicode_normal_form.h"

namespace garam {

class Normalizer {
  public:
    // `description` may be null (no normalizer). Throws Error naming what is not supported.
    Normalizer(const Json* description, const std::string& source);

    bool changes_nothing() const { return steps_.empty(); }
    AlignedText apply(AlignedText text) const;
    // Whether apply certainly leaves this text as it is, by a quick look at it.
    bool leaves(std::string_view text) const;

  private:
    enum class Kind { compose, prepend, replace, replace_matches, lowercase, strip, charsmap, map };
    struct Step {
        Kind kind;
        NormalForm form = {};  // compose
        std::string pattern;   // replace
        std::string content;   // prepend, replace
        bool left = false;     // strip
        bool right = false;
        std::shared_ptr<const Pattern> expression = nullptr;            // replace_matches
        std::shared_ptr<const PrecompiledCharsmap> charsmap = nullptr;  // charsmap
        AlignedText (*map)(const AlignedText&) = nullptr;               // map
    };
    void add(const Json& description, const std::string& source);
    void add_replace(const Json& description, const std::string& where);
    void add_bert(const Json& description, const std::string& where);
    void add_map(AlignedText (*map)(const AlignedText&));

    std::vector<Step> steps_;
};

}  // namespace garam
