#include "garam/text/wordpiece_model.h"

#include <algorithm>
#include <optional>

#include "garam/core/error.h"
#include "garam/text/unicode.h"

namespace garam {

WordPieceModel::WordPieceModel(const Json& model, const Vocabulary& vocabulary,
                               const std::string& source)
    : vocabulary_(vocabulary) {
    const std::string where = source + ": model";
    std::string unknown = "[UNK]";
    if (const Json* value = model.find("unk_token"); value != nullptr && !value->is_null())
        unknown = value->string(where + ".unk_token");
    const auto id = vocabulary.find(unknown);
    if (!id) throw Error(where + ": the unk_token \"" + unknown + "\" is not in the vocabulary");
    unknown_ = *id;
    if (const Json* value = model.find("continuing_subword_prefix");
        value != nullptr && !value->is_null())
        prefix_ = value->string(where + ".continuing_subword_prefix");
    if (const Json* value = model.find("max_input_chars_per_word");
        value != nullptr && !value->is_null()) {
        const std::int64_t most = value->integer(where + ".max_input_chars_per_word");
        // Cutting is quadratic in the length of a word.
        constexpr std::int64_t kLongest = 10000;
        if (most < 0 || most > kLongest)
            throw Error(where + ".max_input_chars_per_word is " + std::to_string(most) +
                        "; 0 to 10000 are supported");
        longest_word_ = static_cast<std::size_t>(most);
    }
    for (std::int32_t token = 0; token < vocabulary.size(); ++token) {
        const std::size_t size = vocabulary.token(token).size();
        if (size >= is_size_.size()) is_size_.resize(size + 1);
        is_size_[size] = true;
    }
}

void WordPieceModel::encode(std::string_view piece, std::vector<BpeModel::Token>& out) const {
    const auto size = static_cast<std::uint32_t>(piece.size());
    const std::size_t before = out.size();
    const auto characters = piece.size() - static_cast<std::size_t>(std::count_if(
                                               piece.begin(), piece.end(), is_utf8_continuation));
    bool known = characters <= longest_word_;
    std::string token;
    for (std::uint32_t begin = 0; known && begin < size;) {
        token = begin == 0 ? "" : prefix_;
        const std::size_t head = token.size();
        token += piece.substr(begin, is_size_.size());
        while (begin + token.size() - head < size &&
               is_utf8_continuation(piece[begin + token.size() - head]))
            token.pop_back();  // no half characters
        known = false;
        for (; token.size() > head;) {
            const bool may_be = token.size() < is_size_.size() && is_size_[token.size()];
            if (const auto id = may_be ? vocabulary_.find(token) : std::nullopt) {
                const auto end = begin + static_cast<std::uint32_t>(token.size() - head);
                out.push_back({*id, begin, end});
                begin = end;
                known = true;
                break;
            }
            while (is_utf8_continuation(token.back()))
                token.pop_back();
            token.pop_back();
        }
    }
    if (known) return;
    out.resize(before);
    out.push_back({unknown_, 0, size});
}

}  // namespace garam
