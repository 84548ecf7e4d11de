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
    const Pattern first("(?s)[\\p{L}\\p{N}].*", source);
    const std::pair<Pattern, CharacterClass> kinds[] = {{Pattern("\\p{L}+", source), kLetter},
                                                        {Pattern("\\p{N}+", source), kNumber}};
    // A plane at a time: all of its characters as one text. Most planes have neither letters nor numbers.
    constexpr char32_t kPlane = 0x10000;
    std::map<std::string, std::uint16_t> known;  // a block's classes as bytes
    std::string text;
    std::vector<ByteSpan> found;
    for (char32_t plane = 0; plane < kCodePoints; plane += kPlane) {
        std::string classes(kPlane, static_cast<char>(kOther));
        text.clear();
        for (char32_t c = plane; c < plane + kPlane; ++c)
            if (c < 0xD800 || c >= 0xE000) append_utf8(text, c);
        found.clear();
        first.find_all(text, found);
        const bool has_some = !found.empty();
        for (const auto& [pattern, kind] : kinds) {
            if (!has_some) break;
            found.clear();
            pattern.find_all(text, found);
            for (const ByteSpan span : found) {
                for (std::size_t at = span.begin; at < span.end;)
                    classes[next_code_point(text, at) - plane] = static_cast<char>(kind);
            }
        }
        for (char32_t c = 0; c < kPlane; ++c)
            if (is_white_space(plane + c)) classes[c] = static_cast<char>(kSpace);
        if (plane == 0) classes[U'\r'] = classes[U'\n'] = static_cast<char>(kNewline);
        for (char32_t begin = 0; begin < kPlane; begin += 256) {
            std::string block = classes.substr(begin, 256);
            const auto next = static_cast<std::uint16_t>(known.size());
            const auto [place, fresh] = known.try_emplace(std::move(block), next);
            if (fresh) blocks_.insert(blocks_.end(), place->first.begin(), place->first.end());
            block_[(plane + begin) >> 8] = place->second;
        }
    }
}

}  // namespace garam
