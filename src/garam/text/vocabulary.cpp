#include "garam/text/vocabulary.h"

#include "garam/core/error.h"
#include "garam/text/unicode.h"

namespace garam {

void Vocabulary::add(std::string_view token, std::int64_t id) {
    const auto quoted = [](std::string_view text) { return "\"" + std::string(text) + "\""; };
    if (id < 0 || id >= kMaxIds)
        throw Error(source_ + ": token " + quoted(token) + " has the id " + std::to_string(id) +
                    "; ids from 0 to " + std::to_string(kMaxIds - 1) + " are supported");
    if (first_invalid_utf8(token) != std::string_view::npos)
        throw Error(source_ + ": the token with id " + std::to_string(id) + " is not valid UTF-8");
    const auto at = static_cast<std::size_t>(id);
    if (const auto known = ids_.find(token); known != ids_.end()) {
        if (known->second == id) return;
        throw Error(source_ + ": token " + quoted(token) + " has two ids, " +
                    std::to_string(known->second) + " and " + std::to_string(id));
    }
    if (at < present_.size() && present_[at])
        throw Error(source_ + ": id " + std::to_string(id) + " names two tokens, " +
                    quoted(tokens_[at]) + " and " + quoted(token));
    if (at >= tokens_.size()) {
        tokens_.resize(at + 1);
        present_.resize(at + 1, false);
    }
    tokens_[at] = std::string(token);
    present_[at] = true;
    ids_.emplace(std::string(token), static_cast<std::int32_t>(id));
}

std::optional<std::int32_t> Vocabulary::find(std::string_view token) const {
    const auto found = ids_.find(token);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
}

bool Vocabulary::has(std::int32_t id) const {
    return id >= 0 && id < size() && present_[static_cast<std::size_t>(id)];
}

const std::string& Vocabulary::token(std::int32_t id) const {
    static const std::string none;
    return has(id) ? tokens_[static_cast<std::size_t>(id)] : none;
}

}  // namespace garam
