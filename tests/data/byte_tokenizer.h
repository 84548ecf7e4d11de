// A tokenizer whose ids can be told by hand: a byte is the id byte + 3, a special token the id 300
// and up in the order given; each of `merges` is one token wherever it occurs, so that borders of
// prompts can be crossed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "garam/core/error.h"
#include "garam/text/tokenizer.h"

namespace garam::testing {

class ByteTokenizer : public Tokenizer {
  public:
    static constexpr std::int32_t kFirstSpecial = 300;
    static constexpr std::int32_t kFirstMerge = 400;

    struct Setup {
        std::vector<std::string> specials = {"<bos>", "<eos>", "<|im_start|>", "<|im_end|>"};
        std::string bos = "<bos>";
        std::string eos = "<eos>";
        std::string pad;
        bool adds_bos = false;
        std::vector<std::string> merges;  // texts that are one token wherever they occur
        std::string chat_template;
    };

    ByteTokenizer() = default;
    explicit ByteTokenizer(Setup setup) : setup_(std::move(setup)) {}

    Encoding encode(std::string_view text, const EncodeOptions& options) const override {
        Encoding encoding;
        const auto put = [&](std::int32_t id, std::size_t begin, std::size_t end) {
            encoding.ids.push_back(id);
            encoding.spans.push_back({begin, end});
        };
        if (options.add_special_tokens && setup_.adds_bos) put(*bos_id(), 0, 0);
        for (std::size_t at = 0; at < text.size();) {
            std::size_t length = 0;
            std::int32_t id = 0;
            if (options.parse_special_tokens)
                find(setup_.specials, kFirstSpecial, text, at, id, length);
            if (length == 0) find(setup_.merges, kFirstMerge, text, at, id, length);
            if (length == 0) {
                id = static_cast<unsigned char>(text[at]) + 3;
                length = 1;
            }
            put(id, at, at + length);
            at += length;
        }
        return encoding;
    }
    std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const override {
        std::string text;
        for (const std::int32_t id : ids) {
            if (!skip_special_tokens || !is_special(id)) text += token_of(id);
        }
        return text;
    }
    std::int64_t vocab_size() const override {
        return kFirstMerge + static_cast<std::int64_t>(setup_.merges.size());
    }
    std::optional<std::int32_t> id_of(std::string_view token) const override {
        for (std::size_t i = 0; i < setup_.specials.size(); ++i) {
            if (setup_.specials[i] == token) return kFirstSpecial + static_cast<std::int32_t>(i);
        }
        return std::nullopt;
    }
    // Empty for an id that names no token.
    std::string token_of(std::int32_t id) const override {
        const std::vector<std::string>& texts = id >= kFirstMerge ? setup_.merges : setup_.specials;
        const std::int32_t first = id >= kFirstMerge ? kFirstMerge : kFirstSpecial;
        if (id >= kFirstSpecial) {
            const auto at = static_cast<std::size_t>(id - first);
            return at < texts.size() ? texts[at] : "";
        }
        return id >= 3 && id < 256 + 3 ? std::string(1, static_cast<char>(id - 3)) : "";
    }
    bool is_special(std::int32_t id) const override {
        return id >= kFirstSpecial && id < kFirstMerge && !token_of(id).empty();
    }
    std::optional<std::int32_t> bos_id() const override { return id_of(setup_.bos); }
    std::optional<std::int32_t> eos_id() const override { return id_of(setup_.eos); }
    std::optional<std::int32_t> pad_id() const override { return id_of(setup_.pad); }
    bool adds_bos() const override { return setup_.adds_bos; }
    const std::string& chat_template() const override { return setup_.chat_template; }
    void save(const std::filesystem::path&) const override {
        throw Bug("the tests' tokenizer is not saved");
    }

  private:
    static void find(const std::vector<std::string>& texts, std::int32_t first,
                     std::string_view text, std::size_t at, std::int32_t& id, std::size_t& length) {
        for (std::size_t i = 0; i < texts.size(); ++i) {
            if (texts[i].size() <= length || text.substr(at, texts[i].size()) != texts[i]) continue;
            id = first + static_cast<std::int32_t>(i);
            length = texts[i].size();
        }
    }

    Setup setup_;
};

// ChatML: <|im_start|>role\ncontent<|im_end|>\n a message.
inline constexpr const char* kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' "
    "}}{% endif %}";

}  // namespace garam::testing
