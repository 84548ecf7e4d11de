#include "garam/text/added_tokens.h"

#include <algorithm>
#include <limits>

#include "garam/core/error.h"
#include "garam/text/unicode.h"

namespace garam {
namespace {

// First byte of the character that ends before `at`.
std::size_t character_before(std::string_view text, std::size_t at) {
    do {
        --at;
    } while (at > 0 && is_utf8_continuation(text[at]));
    return at;
}

bool word_before(std::string_view text, std::size_t at) {
    if (at == 0) return false;
    std::size_t begin = character_before(text, at);
    return is_word_character(next_code_point(text, begin));
}

bool word_after(std::string_view text, std::size_t at) {
    return at < text.size() && is_word_character(next_code_point(text, at));
}

}  // namespace

AddedToken AddedToken::parse(const Json& description, std::int64_t id, const std::string& where) {
    const auto flag = [&](std::string_view key, bool otherwise) {
        const Json* value = description.find(key);
        return value == nullptr ? otherwise : value->boolean(where + "." + std::string(key));
    };
    if (id < 0 || id > std::numeric_limits<std::int32_t>::max())
        throw Error(where + ": id " + std::to_string(id) + " is out of range");
    AddedToken token;
    token.id = static_cast<std::int32_t>(id);
    token.content = description.at("content", where).string(where + ".content");
    token.special = flag("special", false);
    token.single_word = flag("single_word", false);
    token.lstrip = flag("lstrip", false);
    token.rstrip = flag("rstrip", false);
    token.normalized = flag("normalized", !token.special);
    if (token.content.size() > kMaxBytes)
        throw Error(where + ": an added token of " + std::to_string(token.content.size()) +
                    " bytes; at most " + std::to_string(kMaxBytes) + " are supported");
    return token;
}

std::set<std::string, std::less<>> contents_of(const std::vector<AddedToken>& tokens) {
    std::set<std::string, std::less<>> contents;
    for (const AddedToken& token : tokens)
        contents.insert(token.content);
    return contents;
}

std::int32_t AddedTokenMatcher::child(std::int32_t node, char byte) const {
    const auto& children = nodes_[static_cast<std::size_t>(node)].children;
    const auto found = std::lower_bound(
        children.begin(), children.end(), byte,
        [](const std::pair<char, std::int32_t>& entry, char b) { return entry.first < b; });
    return found != children.end() && found->first == byte ? found->second : -1;
}

void AddedTokenMatcher::add(const AddedToken& token, std::string_view content) {
    if (content.empty()) return;
    const auto first = static_cast<unsigned char>(content[0]);
    first_bytes_[first] = true;
    for (std::size_t second = 0; second < 256; ++second) {
        if (content.size() == 1 || second == static_cast<unsigned char>(content[1]))
            first_pairs_[std::size_t{first} << 8 | second] = true;
    }
    std::int32_t node = 0;
    for (const char byte : content) {
        std::int32_t next = child(node, byte);
        if (next < 0) {
            next = static_cast<std::int32_t>(nodes_.size());
            auto& children = nodes_[static_cast<std::size_t>(node)].children;
            children.insert(std::lower_bound(children.begin(), children.end(),
                                             std::pair<char, std::int32_t>(byte, 0)),
                            {byte, next});
            nodes_.emplace_back();
        }
        node = next;
    }
    nodes_[static_cast<std::size_t>(node)].token = static_cast<std::int32_t>(tokens_.size());
    tokens_.push_back(token);
}

// The next place at which a token may begin, or the end of the text.
std::size_t AddedTokenMatcher::next_beginning(std::string_view text, std::size_t at) const {
    for (; at < text.size(); ++at) {
        const auto first = static_cast<unsigned char>(text[at]);
        if (!first_bytes_[first]) continue;
        if (at + 1 == text.size()) break;
        const auto second = static_cast<unsigned char>(text[at + 1]);
        if (first_pairs_[std::size_t{first} << 8 | second]) break;
    }
    return at;
}

void AddedTokenMatcher::split(std::string_view text, bool parse_special,
                              std::vector<Part>& parts) const {
    parts.clear();
    std::size_t done = 0;  // bytes already in parts
    std::size_t at = 0;
    while ((at = next_beginning(text, at)) < text.size()) {
        std::int32_t node = 0;
        std::int32_t matched = -1;
        std::size_t matched_end = at;
        for (std::size_t i = at; i < text.size(); ++i) {
            node = child(node, text[i]);
            if (node < 0) break;
            if (const std::int32_t token = nodes_[static_cast<std::size_t>(node)].token;
                token >= 0) {
                matched = token;
                matched_end = i + 1;
            }
        }
        if (matched < 0) {
            ++at;
            continue;
        }
        const AddedToken& token = tokens_[static_cast<std::size_t>(matched)];
        std::size_t begin = at;
        std::size_t end = matched_end;
        at = matched_end;
        if (token.special && !parse_special) continue;
        if (token.single_word && (word_before(text, begin) || word_after(text, end))) continue;
        if (token.lstrip) {
            while (begin > done) {
                std::size_t before = character_before(text, begin);
                const std::size_t start = before;
                if (!is_white_space(next_code_point(text, before))) break;
                begin = std::max(start, done);
            }
        }
        if (token.rstrip) {
            while (end < text.size()) {
                std::size_t after = end;
                if (!is_white_space(next_code_point(text, after))) break;
                end = after;
            }
        }
        if (done < begin) parts.push_back({{done, begin}, std::nullopt});
        parts.push_back({{begin, end}, token.id});
        done = end;
        at = std::max(at, end);
    }
    if (done < text.size()) parts.push_back({{done, text.size()}, std::nullopt});
}

}  // namespace garam
