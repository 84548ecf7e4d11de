// Regular expressions of pre-tokenizers, over PCRE2 with Unicode properties.
//
// Patterns are written for Oniguruma (the engine of the reference); where the two differ the pattern is
// translated: \s and \S mean the White_Space property. A match that exceeds the engine's limits is an
// Error, never a wrong split. Patterns of well-known pre-tokenizers are matched by scanners instead.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "garam/text/pattern_scanner.h"
#include "garam/text/tokenizer.h"

namespace garam {

class Pattern {
  public:
    enum class Engine { fastest, pcre2 };
    // Throws Error "<source>: pattern ...: <reason>".
    Pattern(std::string_view expression, const std::string& source,
            Engine engine = Engine::fastest);
    ~Pattern();
    Pattern(Pattern&&) noexcept;
    Pattern& operator=(Pattern&&) noexcept;

    // All non-empty matches in valid UTF-8, left to right, not overlapping. Look-arounds see `text` only.
    // Appended to `out`. Thread-safe.
    void find_all(std::string_view text, std::vector<ByteSpan>& out) const;

    // The scanner that matches it, if any.
    KnownPattern known() const { return known_; }

  private:
    struct Compiled;
    KnownPattern known_ = KnownPattern::none;
    std::unique_ptr<Compiled> compiled_;
};

}  // namespace garam
