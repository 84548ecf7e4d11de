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
    if (const auto known = find(token)) {
        if (*known == id) return;
        throw Error(source_ + ": token " + quoted(token) + " has two ids, " +
                    std::to_string(*known) + " and " + std::to_string(id));
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
    if (2 * ++count_ > slots_.size()) grow();
    const std::uint32_t hash = hash_of(token);
    slots_[place(token, hash)] = {hash, static_cast<std::int32_t>(id)};
}

std::size_t Vocabulary::place(std::string_view token, std::uint32_t hash) const {
    std::size_t at = hash & (slots_.size() - 1);
    while (slots_[at].id >= 0 &&
           (slots_[at].hash != hash || tokens_[static_cast<std::size_t>(slots_[at].id)] != token))
        at = (at + 1) & (slots_.size() - 1);
    return at;
}

void Vocabulary::grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
        if (slot.id < 0) continue;
        std::size_t at = slot.hash & (slots_.size() - 1);
        while (slots_[at].id >= 0)
            at = (at + 1) & (slots_.size() - 1);
        slots_[at] = slot;
    }
}

std::optional<std::int32_t> Vocabulary::find(std::string_view token) const {
    const Slot& slot = slots_[place(token, hash_of(token))];
    if (slot.id < 0) return std::nullopt;
    return slot.id;
}

bool Vocabulary::has(std::int32_t id) const {
    return id >= 0 && id < size() && present_[static_cast<std::size_t>(id)];
}

const std::string& Vocabulary::token(std::int32_t id) const {
    static const std::string none;
    return has(id) ? tokens_[static_cast<std::size_t>(id)] : none;
}

}  // namespace garam
