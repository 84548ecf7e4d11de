#include "garam/text/character_split.h"

#include "garam/core/error.h"
#include "garam/text/unicode.h"

namespace garam {
namespace {

// Each character of the kind by itself.
template <typename IsKind>
auto characters_that(IsKind is_kind) {
    return [is_kind](std::string_view text) {
        std::vector<ByteSpan> found;
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t begin = at;
            if (is_kind(next_code_point(text, at))) found.push_back({begin, at});
        }
        return found;
    };
}

// Runs of word characters, and runs of what is neither word nor white space: \w+|[^\w\s]+
std::vector<ByteSpan> words_and_symbols(std::string_view text) {
    std::vector<ByteSpan> found;
    enum class Kind { space, word, symbol } last = Kind::space;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t begin = at;
        const char32_t c = next_code_point(text, at);
        const Kind kind = is_word_character(c) ? Kind::word
                          : is_white_space(c)  ? Kind::space
                                               : Kind::symbol;
        if (kind != Kind::space && kind == last) {
            found.back().end = at;
        } else if (kind != Kind::space) {
            found.push_back({begin, at});
        }
        last = kind;
    }
    return found;
}

std::vector<ByteSpan> chunks_of(std::string_view text, std::size_t characters) {
    std::vector<ByteSpan> found;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t begin = at;
        for (std::size_t i = 0; i < characters && at < text.size(); ++i)
            at += utf8_length(text[at]);
        found.push_back({begin, at});
    }
    return found;
}

}  // namespace

std::vector<CharacterSplit> character_splits(const Json& description, const std::string& type,
                                             const std::string& where) {
    if (type == "Whitespace") return {{words_and_symbols, "Removed", true}};
    if (type == "WhitespaceSplit") return {{characters_that(is_white_space), "Removed"}};
    if (type == "BertPreTokenizer")
        return {{characters_that(is_white_space), "Removed"},
                {characters_that(is_reference_punctuation), "Isolated"}};
    if (type == "Punctuation") {
        const Json* behavior = description.find("behavior");
        return {{characters_that(is_reference_punctuation),
                 behavior == nullptr ? "Isolated" : behavior->string(where + ".behavior")}};
    }
    if (type == "CharDelimiterSplit" || type == "Delimiter") {
        const std::string& delimiter =
            description.at("delimiter", where).string(where + ".delimiter");
        std::size_t at = 0;
        if (delimiter.empty() || utf8_length(delimiter[0]) != delimiter.size())
            throw Error(where + ": the delimiter \"" + delimiter + "\" is not one character");
        const char32_t wanted = next_code_point(delimiter, at);
        return {{characters_that([wanted](char32_t c) { return c == wanted; }), "Removed"}};
    }
    if (type == "FixedLength") {
        const Json* length = description.find("length");
        const std::int64_t characters = length == nullptr ? 5 : length->integer(where + ".length");
        if (characters < 1) throw Error(where + ": FixedLength needs a length of 1 or more");
        return {{[characters](std::string_view text) {
                     return chunks_of(text, static_cast<std::size_t>(characters));
                 },
                 "Isolated"}};
    }
    return {};
}

}  // namespace garam
