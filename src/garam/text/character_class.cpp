#include "garam/text/character_class.h"

#include <map>
#include <string>

#include "garam/text/pattern.h"
#include "garam/text/unicode.h"

namespace garam {

const CharacterClasses& CharacterClasses::table() {
    static const CharacterClasses classes;
    return classes;
}

CharacterClasses::CharacterClasses() {
    const std::string source = "character classes";
    const std::pair<Pattern, CharacterClass> kinds[] = {
        {Pattern("\\p{L}+", source), kLetter},
        {Pattern("\\p{N}+", source), kNumber},
        {Pattern("\\s+", source), kSpace},
        {Pattern("[\\r\\n]", source), kNewline},
    };
    // A plane at a time: all of its characters as one text.
    constexpr char32_t kPlane = 0x10000;
    std::map<std::vector<CharacterClass>, std::uint16_t> known;
    std::string text;
    std::vector<ByteSpan> found;
    for (char32_t plane = 0; plane < kCodePoints; plane += kPlane) {
        std::vector<CharacterClass> classes(kPlane, kOther);
        text.clear();
        for (char32_t c = plane; c < plane + kPlane; ++c)
            if (c < 0xD800 || c >= 0xE000) append_utf8(text, c);
        for (const auto& [pattern, kind] : kinds) {
            found.clear();
            pattern.find_all(text, found);
            for (const ByteSpan span : found) {
                for (std::size_t at = span.begin; at < span.end;)
                    classes[next_code_point(text, at) - plane] = kind;
            }
        }
        for (char32_t begin = 0; begin < kPlane; begin += 256) {
            std::vector<CharacterClass> block(classes.begin() + begin,
                                              classes.begin() + begin + 256);
            const auto next = static_cast<std::uint16_t>(known.size());
            const auto [place, fresh] = known.try_emplace(std::move(block), next);
            if (fresh) blocks_.insert(blocks_.end(), place->first.begin(), place->first.end());
            block_[(plane + begin) >> 8] = place->second;
        }
    }
}

}  // namespace garam
