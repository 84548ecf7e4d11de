#include "garam/text/gguf_tokenizer_keys.h"

#include <unordered_map>

#include "garam/core/error.h"
#include "garam/io/gguf.h"
#include "garam/text/bpe_model.h"
#include "garam/text/bpe_tokenizer.h"
#include "garam/text/tokenizer_files.h"
#include "garam/text/unicode.h"

namespace garam {
namespace {

// tokenizer.ggml.token_type
constexpr std::int32_t kNormal = 1;
constexpr std::int32_t kUnknown = 2;
constexpr std::int32_t kControl = 3;
constexpr std::int32_t kUserDefined = 4;
constexpr std::int32_t kUnused = 5;
constexpr std::int32_t kByte = 6;

GgufTokenizerKeys copied(const GgufFile& file) {
    GgufTokenizerKeys out;
    for (const auto& [key, value] : file.keys()) {
        if (key.starts_with("tokenizer.")) out.keys.emplace_back(key, gguf_value(value, key));
    }
    return out;
}

bool flag(const Json& json, std::string_view key, bool otherwise) {
    const Json* value = json.find(key);
    return value != nullptr && value->is_bool() ? value->boolean() : otherwise;
}
std::string text(const Json& json, std::string_view key) {
    const Json* value = json.find(key);
    return value != nullptr && value->is_string() ? value->string() : std::string();
}

// What a pre-tokenizer does in one line, without fields that change nothing.
std::string shape_of(const Json& step) {
    std::string type = text(step, "type");
    if (type == "Sequence") {
        std::string all;
        for (const Json& inner : step.at("pretokenizers").array())
            all += shape_of(inner) + "\n";
        return all;
    }
    if (type == "Split") {
        const Json* pattern = step.find("pattern");
        return "Split " + (pattern == nullptr ? "" : pattern->dump()) + " " +
               text(step, "behavior") + (flag(step, "invert", false) ? " inverted" : "");
    }
    if (type == "Digits")
        return flag(step, "individual_digits", false) ? "Digits one by one" : "Digits";
    if (type == "ByteLevel")
        return std::string("ByteLevel") + (flag(step, "use_regex", true) ? " with pattern" : "") +
               (flag(step, "add_prefix_space", false) ? " with a space before" : "");
    return type;
}

class TokenizerWriter {
  public:
    TokenizerWriter(const TokenizerFiles& files, std::int64_t num_tokens)
        : files_(files),
          tokenizer_(files),
          model_(files.tokenizer.at("model", files.source)),
          num_tokens_(num_tokens) {}

    GgufTokenizerKeys write() {
        if (tokenizer_.vocab_size() > num_tokens_)
            throw Error(files_.source + ": has " + std::to_string(tokenizer_.vocab_size()) +
                        " tokens, the model's embedding only " + std::to_string(num_tokens_) +
                        " rows");
        if (const std::string type = text(model_, "type"); !type.empty() && type != "BPE")
            throw Error(files_.source + ": a tokenizer of type " + type +
                        " is not supported in a GGUF file; supported is BPE");
        sentencepiece_ = flag(model_, "byte_fallback", false);
        list_tokens();
        mark_added_tokens();
        put("model", std::string(sentencepiece_ ? "llama" : "gpt2"));
        if (sentencepiece_) {
            put("pre", std::string("default"));
            put("tokens", tokens_);
            put("scores", scores());
            put("merges", merges());
            put("add_space_prefix", adds_space());
        } else {
            put("pre", pre_tokenizer_name());
            put("tokens", tokens_);
            put("merges", merges());
        }
        put("token_type", types_);
        special_ids();
        if (!files_.chat_template.empty())
            out_.keys.emplace_back("tokenizer.chat_template", files_.chat_template);
        return std::move(out_);
    }

  private:
    void put(const std::string& key, GgufValue value) {
        out_.keys.emplace_back("tokenizer.ggml." + key, std::move(value));
    }

    void list_tokens() {
        for (std::int32_t id = 0; id < num_tokens_; ++id) {
            std::string token = id < tokenizer_.vocab_size() ? tokenizer_.token_of(id) : "";
            std::int32_t type = kNormal;
            if (token.empty()) {
                token = "[PAD" + std::to_string(id) + "]";
                type = kUnused;
            } else if (sentencepiece_ && is_byte(token)) {
                type = kByte;
            }
            tokens_.push_back(std::move(token));
            types_.push_back(type);
        }
    }

    static bool is_byte(const std::string& token) {
        return token.size() == 6 && token.starts_with("<0x") && token.back() == '>' &&
               token.find_first_not_of("0123456789ABCDEFabcdef", 3) == 5;
    }

    void mark_added_tokens() {
        std::vector<std::string> added;
        if (const Json* list = files_.tokenizer.find("added_tokens"); list && list->is_array()) {
            for (const Json& token : list->array())
                added.push_back(text(token, "content"));
        }
        for (const AddedToken& token : files_.added_tokens)
            added.push_back(token.content);
        for (const std::string& token : added) {
            const auto id = tokenizer_.id_of(token);
            if (id) types_[static_cast<std::size_t>(*id)] = kUserDefined;
        }
        for (std::int32_t id = 0; id < tokenizer_.vocab_size(); ++id) {
            if (tokenizer_.is_special(id)) types_[static_cast<std::size_t>(id)] = kControl;
        }
        if (const auto id = unknown_id(); sentencepiece_ && id)
            types_[static_cast<std::size_t>(*id)] = kUnknown;
    }

    std::optional<std::int32_t> unknown_id() const {
        std::string token = text(model_, "unk_token");
        if (token.empty()) token = files_.unk_token;
        return token.empty() ? std::nullopt : tokenizer_.id_of(token);
    }

    const Json::Array& merge_list() const {
        return model_.at("merges", files_.source).array(files_.source);
    }

    std::vector<std::string> merges() const {
        std::vector<std::string> lines;
        for (const Json& merge : merge_list()) {
            const auto [left, right] = parts_of_merge(merge, files_.source);
            lines.emplace_back(left);
            lines.back() += ' ';
            lines.back() += right;
        }
        return lines;
    }

    std::vector<float> scores() {
        const Json::Array& merges = merge_list();
        std::unordered_map<std::string, std::size_t> rank;  // of the first merge that makes a token
        std::size_t last = 0;
        bool in_order = true;  // as merging by the joined token's score has them
        for (std::size_t i = 0; i < merges.size(); ++i) {
            const auto [left, right] = parts_of_merge(merges[i], files_.source);
            std::string joined(left);
            joined += right;
            const std::size_t first = rank.emplace(std::move(joined), i).first->second;
            in_order &= first >= last;
            last = first;
        }
        std::vector<float> scores;
        for (std::size_t id = 0; id < tokens_.size(); ++id) {
            const auto found = rank.find(tokens_[id]);
            float score = 0;
            if (types_[id] == kNormal || types_[id] == kUserDefined)
                score =
                    -static_cast<float>(found != rank.end() ? found->second : merges.size() + id);
            scores.push_back(score);
        }
        if (!in_order || splits(rank) != merges.size())
            out_.notes.push_back(
                "the tokenizer's merges are not those that SentencePiece scores give: llama.cpp "
                "may "
                "cut some words otherwise");
        return scores;
    }

    // In how many ways the tokens that merges make are two tokens end to end.
    std::size_t splits(const std::unordered_map<std::string, std::size_t>& rank) const {
        std::size_t count = 0;
        for (const auto& [token, unused] : rank) {
            for (std::size_t cut = utf8_length(token[0]); cut < token.size();
                 cut += utf8_length(token[cut]))
                count += tokenizer_.id_of(std::string_view(token).substr(0, cut)).has_value() &&
                                 tokenizer_.id_of(std::string_view(token).substr(cut)).has_value()
                             ? 1
                             : 0;
        }
        return count;
    }

    // Whether a space comes before the text.
    bool adds_space() const {
        bool adds = false;
        if (const Json* normalizer = files_.tokenizer.find("normalizer");
            normalizer != nullptr && !normalizer->is_null()) {
            const std::string all = normalizer->dump();
            adds |= all.find("\"Prepend\"") != std::string::npos;
        }
        if (const Json* pre = files_.tokenizer.find("pre_tokenizer");
            pre != nullptr && text(*pre, "type") == "Metaspace")
            adds |= text(*pre, "prepend_scheme") != "never" && flag(*pre, "add_prefix_space", true);
        return adds;
    }

    std::string pre_tokenizer_name() {
        using tokenizer_json::byte_level;
        using tokenizer_json::digits_then_byte_level;
        using tokenizer_json::kLlama3Pattern;
        using tokenizer_json::kQwen2Pattern;
        using tokenizer_json::sequence;
        using tokenizer_json::split;
        const Json* given = files_.tokenizer.find("pre_tokenizer");
        const std::string shape = given == nullptr || given->is_null() ? "" : shape_of(*given);
        if (const Json* normalizer = files_.tokenizer.find("normalizer");
            normalizer != nullptr && !normalizer->is_null())
            out_.notes.push_back("llama.cpp leaves the tokenizer's normalizer (" +
                                 text(*normalizer, "type") + ") out");
        const auto steps = [](Json first) {
            return shape_of(
                sequence("pretokenizers", {std::move(first), byte_level(false, false)}));
        };
        if (shape == shape_of(byte_level(false, true))) return "gpt-2";
        if (shape == shape_of(digits_then_byte_level())) return "smollm";
        if (shape == steps(split(kLlama3Pattern)))
            return flag(model_, "ignore_merges", false) ? "llama-bpe" : "dbrx";
        if (shape == steps(split(kQwen2Pattern))) return "qwen2";
        throw Error(
            files_.source +
            ": its pre_tokenizer is none that garam knows llama.cpp's name of (gpt-2, smollm, "
            "llama-bpe, dbrx, qwen2); export from a GGUF of this model, whose keys are copied");
    }

    void special_ids() {
        const auto id = [&](const std::string& key, std::optional<std::int32_t> value) {
            if (value) put(key, static_cast<std::uint32_t>(*value));
        };
        id("bos_token_id", tokenizer_.bos_id());
        id("eos_token_id", tokenizer_.eos_id());
        id("padding_token_id", tokenizer_.pad_id());
        if (sentencepiece_ || !files_.unk_token.empty()) id("unknown_token_id", unknown_id());
        const std::vector<std::int32_t> around =
            tokenizer_.encode_ids("", {.add_special_tokens = true});
        const bool bos = tokenizer_.adds_bos();
        const std::size_t behind = around.size() - (bos && !around.empty() ? 1 : 0);
        put("add_bos_token", bos);
        const bool eos =
            behind == 1 && tokenizer_.eos_id() && around.back() == *tokenizer_.eos_id();
        put("add_eos_token", eos);
        if (behind > (eos ? 1u : 0u))
            out_.notes.push_back(
                "llama.cpp adds fewer special tokens around a text than this "
                "tokenizer's post_processor");
    }

    const TokenizerFiles& files_;
    BpeTokenizer tokenizer_;
    const Json& model_;
    std::int64_t num_tokens_;
    bool sentencepiece_ = false;
    std::vector<std::string> tokens_;
    std::vector<std::int32_t> types_;
    GgufTokenizerKeys out_;
};

}  // namespace

GgufTokenizerKeys gguf_tokenizer_keys(const std::filesystem::path& model, std::int64_t num_tokens) {
    if (!std::filesystem::is_directory(model)) return copied(*GgufFile::open(model));
    const TokenizerFiles files = read_huggingface_tokenizer(model);
    return TokenizerWriter(files, num_tokens).write();
}

}  // namespace garam
