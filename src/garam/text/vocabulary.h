// Tokens and their ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
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
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const {
            return std::hash<std::string_view>{}(text);
        }
    };
    std::string source_;
    std::vector<std::string> tokens_;
    std::vector<bool> present_;
    std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;
};

}  // namespace garam
