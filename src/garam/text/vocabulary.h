// Tokens and their ids.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace garam {

class Vocabulary {
  public:
    // Ids are used as indices, so a file must not be able to name a huge one.
    static constexpr std::int64_t kMaxIds = std::int64_t{1} << 20;

    explicit Vocabulary(std::string source) : source_(std::move(source)) {}

    // Throws Error naming token and id when the id is out of range, already another token's, or the
    // token already has another id. The same pair again is fine.
    void add(std::string_view token, std::int64_t id);

    std::optional<std::int32_t> find(std::string_view token) const;
    // Empty for an id that names no token.
    const std::string& token(std::int32_t id) const;
    bool has(std::int32_t id) const;
    std::int64_t size() const {
        return static_cast<std::int64_t>(tokens_.size());
    }  // largest id + 1

  private:
    // Token -> id, by open addressing, at most half full: the tokens themselves stand in tokens_.
    struct Slot {
        std::uint32_t hash = 0;
        std::int32_t id = -1;  // -1: free
    };
    static std::uint32_t hash_of(std::string_view token) {
        return static_cast<std::uint32_t>(std::hash<std::string_view>{}(token));
    }
    // Where the token is, or would be.
    std::size_t place(std::string_view token, std::uint32_t hash) const;
    void grow();

    std::string source_;
    std::vector<std::string> tokens_;
    std::vector<bool> present_;
    std::vector<Slot> slots_ = std::vector<Slot>(64);
    std::size_t count_ = 0;
};

}  // namespace garam
