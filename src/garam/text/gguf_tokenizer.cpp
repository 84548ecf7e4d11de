// Reads the tokenizer keys of a GGUF file (tokenizer.ggml.*, as llama.cpp defines them).
#include <algorithm>

#include "garam/core/error.h"
#include "garam/io/gguf.h"
#include "garam/text/merges_from_scores.h"
#include "garam/text/sentencepiece_tokenizer.h"
#include "garam/text/tokenizer_files.h"
#include "garam/text/unicode.h"
#include "garam/text/vocabulary.h"

namespace garam {
namespace {

using tokenizer_json::added_token;
using tokenizer_json::byte_level;
using tokenizer_json::digits_then_byte_level;
using tokenizer_json::document;
using tokenizer_json::kLlama3Pattern;
using tokenizer_json::kQwen2Pattern;
using tokenizer_json::sequence;
using tokenizer_json::split;
using tokenizer_json::template_processing;

// tokenizer.ggml.token_type
enum class TokenType : std::int64_t { normal = 1, unknown, control, user_defined, unused, byte };

constexpr const char* kSpaceMark = "\xE2\x96\x81";  // U+2581

struct Keys {
    const GgufFile& file;
    std::string where(std::string_view key) const {
        return file.path().string() + ": tokenizer.ggml." + std::string(key);
    }
    const Json* find(std::string_view key) const {
        return file.find("tokenizer.ggml." + std::string(key));
    }
    const Json& at(std::string_view key) const {
        const Json* value = find(key);
        if (value == nullptr) throw Error(where(key) + " is missing");
        return *value;
    }
    std::string text(std::string_view key, const std::string& otherwise) const {
        const Json* value = find(key);
        return value == nullptr ? otherwise : value->string(where(key));
    }
    bool flag(std::string_view key, bool otherwise) const {
        const Json* value = find(key);
        return value == nullptr ? otherwise : value->boolean(where(key));
    }
    // A token's index, or absent.
    std::optional<std::size_t> id(std::string_view key, std::size_t tokens) const {
        const Json* value = find(key);
        if (value == nullptr) return std::nullopt;
        const std::int64_t id = value->integer(where(key));
        if (id < 0 || static_cast<std::size_t>(id) >= tokens)
            throw Error(where(key) + " is " + std::to_string(id) + ", but there are " +
                        std::to_string(tokens) + " tokens");
        return static_cast<std::size_t>(id);
    }
};

struct Pipeline {
    Json normalizer;
    Json pre_tokenizer;
    bool ignore_merges = false;
    bool add_bos = false;
};

Pipeline byte_level_pipeline(const Keys& keys) {
    const std::string pre = keys.text("pre", "default");
    Pipeline made;
    // llama.cpp's names of one and the same pattern.
    if (pre == "smollm" || pre == "exaone" || pre == "refact" || pre == "starcoder" ||
        pre == "command-r") {
        made.pre_tokenizer = digits_then_byte_level();
    } else if (pre == "gpt-2" || pre == "olmo") {
        made.pre_tokenizer = byte_level(false, true);
    } else if (pre == "llama-bpe") {
        made.pre_tokenizer =
            sequence("pretokenizers", {split(kLlama3Pattern), byte_level(false, false)});
        made.ignore_merges = true;
        made.add_bos = true;
    } else if (pre == "dbrx") {
        made.pre_tokenizer =
            sequence("pretokenizers", {split(kLlama3Pattern), byte_level(false, false)});
    } else if (pre == "qwen2") {
        // llama.cpp leaves the model's own NFC out; models were trained with it.
        made.normalizer = Json::Object{{"type", "NFC"}};
        made.pre_tokenizer =
            sequence("pretokenizers", {split(kQwen2Pattern), byte_level(false, false)});
    } else if (pre == "default") {
        made.pre_tokenizer = sequence(
            "pretokenizers",
            {split(R"([\p{P}\$\+<=>\^~\|]+)"),
             split(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))"),
             split(R"(\p{N}+)"), split("[0-9][0-9][0-9]"), byte_level(false, false)});
    } else {
        throw Error(keys.where("pre") + " \"" + pre +
                    "\" is not supported; supported are smollm, llama-bpe, gpt-2, qwen2, exaone, "
                    "dbrx, olmo, refact, starcoder, command-r and default");
    }
    return made;
}

Pipeline sentencepiece_pipeline(bool add_space_prefix) {
    Pipeline made;
    Json::Array steps;
    if (add_space_prefix)
        steps.push_back(Json::Object{{"type", "Prepend"}, {"prepend", kSpaceMark}});
    steps.push_back(Json::Object{
        {"type", "Replace"}, {"pattern", Json::Object{{"String", " "}}}, {"content", kSpaceMark}});
    made.normalizer = sequence("normalizers", std::move(steps));
    made.add_bos = true;
    return made;
}

Json sentencepiece_decoder(bool add_space_prefix) {
    Json::Array steps{Json::Object{{"type", "Replace"},
                                   {"pattern", Json::Object{{"String", kSpaceMark}}},
                                   {"content", " "}},
                      Json::Object{{"type", "ByteFallback"}}, Json::Object{{"type", "Fuse"}}};
    if (add_space_prefix)
        steps.push_back(
            Json::Object{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    return sequence("decoders", std::move(steps));
}

// Model "t5": what llama.cpp keeps of a SentencePiece Unigram model.
SentencePieceModel unigram_model(const Keys& keys, const std::vector<std::string>& tokens,
                                 const std::vector<TokenType>& types) {
    SentencePieceModel model;
    const Json::Array& scores = keys.at("scores").array(keys.where("scores"));
    bool has_unknown = false;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const auto type = static_cast<SentencePieceModel::Type>(types[i]);
        model.pieces.push_back(
            {tokens[i], static_cast<float>(scores[i].number(keys.where("scores"))), type});
        if (type == SentencePieceModel::Type::byte) model.byte_fallback = true;
        if (type == SentencePieceModel::Type::unknown && !has_unknown) {
            model.unk_id = static_cast<std::int64_t>(i);
            has_unknown = true;
        }
    }
    if (const auto id = keys.id("unknown_token_id", tokens.size()))
        model.unk_id = static_cast<std::int64_t>(*id);
    model.add_dummy_prefix = keys.flag("add_space_prefix", true);
    model.remove_extra_whitespaces = keys.flag("remove_extra_whitespaces", false);
    if (const Json* charsmap = keys.find("precompiled_charsmap")) {
        for (const Json& byte : charsmap->array(keys.where("precompiled_charsmap")))
            model.precompiled_charsmap +=
                static_cast<char>(byte.integer(keys.where("precompiled_charsmap")));
    }
    return model;
}

}  // namespace

TokenizerFiles read_gguf_tokenizer(const GgufFile& file) {
    const Keys keys{file};
    TokenizerFiles files;
    files.source = file.path().string();
    const std::string& kind = keys.at("model").string(keys.where("model"));
    const bool sentencepiece = kind == "llama";
    const bool unigram = kind == "t5";
    if (!sentencepiece && !unigram && kind != "gpt2")
        throw Error(keys.where("model") + " \"" + kind +
                    "\" is not supported; supported are gpt2, llama and t5");

    std::vector<std::string> tokens;
    for (const Json& token : keys.at("tokens").array(keys.where("tokens")))
        tokens.push_back(token.string(keys.where("tokens")));
    if (tokens.size() > static_cast<std::size_t>(Vocabulary::kMaxIds))
        throw Error(keys.where("tokens") + ": " + std::to_string(tokens.size()) +
                    " tokens are too many");
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (first_invalid_utf8(tokens[i]) != std::string::npos)
            throw Error(keys.where("tokens") + "[" + std::to_string(i) + "] is not valid UTF-8");
    }
    const auto check_count = [&](std::string_view key, std::size_t count) {
        if (count != tokens.size())
            throw Error(keys.where(key) + " has " + std::to_string(count) + " entries for " +
                        std::to_string(tokens.size()) + " tokens");
    };
    std::vector<TokenType> types(tokens.size(), TokenType::normal);
    if (const Json* listed = keys.find("token_type")) {
        const Json::Array& values = listed->array(keys.where("token_type"));
        check_count("token_type", values.size());
        for (std::size_t i = 0; i < values.size(); ++i)
            types[i] = static_cast<TokenType>(values[i].integer(keys.where("token_type")));
    }

    const bool add_space_prefix = keys.flag("add_space_prefix", sentencepiece);
    Pipeline pipeline;
    if (!unigram)
        pipeline =
            sentencepiece ? sentencepiece_pipeline(add_space_prefix) : byte_level_pipeline(keys);
    const auto role = [&](std::string_view key) {
        const auto id = keys.id(key, tokens.size());
        return id ? tokens[*id] : std::string();
    };
    files.bos_token = role("bos_token_id");
    files.eos_token = role("eos_token_id");
    files.pad_token = role("padding_token_id");
    files.unk_token = role("unknown_token_id");
    if (files.unk_token.empty()) {
        const auto unknown = std::find(types.begin(), types.end(), TokenType::unknown);
        if (unknown != types.end())
            files.unk_token = tokens[static_cast<std::size_t>(unknown - types.begin())];
    }

    Json::Array merges;
    if (unigram) {
        check_count("scores", keys.at("scores").array(keys.where("scores")).size());
    } else if (sentencepiece && keys.find("merges") != nullptr) {
        merges = keys.at("merges").array(keys.where("merges"));  // more than the scores can tell
    } else if (sentencepiece) {
        const Json::Array& scores = keys.at("scores").array(keys.where("scores"));
        check_count("scores", scores.size());
        std::vector<ScoredPiece> pieces;
        for (std::size_t i = 0; i < tokens.size(); ++i)
            pieces.push_back(
                {&tokens[i], scores[i].number(keys.where("scores")), types[i] == TokenType::normal,
                 types[i] == TokenType::normal || types[i] == TokenType::user_defined});
        merges = merges_from_scores(pieces);
    } else {
        merges = keys.at("merges").array(keys.where("merges"));
    }
    Json::Array added;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const bool has_role =
            !tokens[i].empty() && (tokens[i] == files.bos_token || tokens[i] == files.eos_token ||
                                   tokens[i] == files.pad_token || tokens[i] == files.unk_token);
        const bool special =
            has_role || types[i] == TokenType::control || types[i] == TokenType::unknown;
        if (!special && types[i] != TokenType::user_defined) continue;
        AddedToken token;
        token.id = static_cast<std::int32_t>(i);
        token.content = tokens[i];
        token.special = special;
        added.push_back(added_token(token));
    }
    Json::Object vocabulary;
    vocabulary.reserve(tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i)
        vocabulary.emplace_back(tokens[i], static_cast<std::int64_t>(i));
    Json unknown;
    if (sentencepiece && !files.unk_token.empty()) unknown = files.unk_token;
    Json model = Json::Object{{"type", "BPE"},
                              {"dropout", nullptr},
                              {"unk_token", std::move(unknown)},
                              {"continuing_subword_prefix", nullptr},
                              {"end_of_word_suffix", nullptr},
                              {"fuse_unk", sentencepiece},
                              {"byte_fallback", sentencepiece},
                              {"ignore_merges", pipeline.ignore_merges},
                              {"vocab", std::move(vocabulary)},
                              {"merges", std::move(merges)}};

    const bool add_bos = keys.flag("add_bos_token", pipeline.add_bos);
    const bool add_eos = keys.flag("add_eos_token", false);
    const auto numbered = [&](bool wanted, const std::string& token, std::string_view key) {
        std::optional<std::pair<std::string, std::int64_t>> made;
        if (!wanted) return made;
        const auto id = keys.id(key, tokens.size());
        if (!id) throw Error(keys.where(key) + " is missing, but the tokenizer adds that token");
        made.emplace(token, static_cast<std::int64_t>(*id));
        return made;
    };
    const auto bos = numbered(add_bos, files.bos_token, "bos_token_id");
    const auto eos = numbered(add_eos, files.eos_token, "eos_token_id");
    Json around = template_processing(bos ? &*bos : nullptr, eos ? &*eos : nullptr);
    if (unigram) {
        files.tokenizer = sentencepiece_tokenizer(unigram_model(keys, tokens, types), files.source);
        files.tokenizer.set("added_tokens", std::move(added));
        files.tokenizer.set("post_processor", std::move(around));
    } else {
        files.tokenizer = document(
            std::move(added), std::move(pipeline.normalizer), std::move(pipeline.pre_tokenizer),
            std::move(around),
            sentencepiece ? sentencepiece_decoder(add_space_prefix) : byte_level(true, true),
            std::move(model));
    }

    if (const Json* source = file.find("tokenizer.chat_template"))
        files.chat_template = source->string(files.source + ": tokenizer.chat_template");
    Json config = Json::Object{{"tokenizer_class", "PreTrainedTokenizerFast"},
                               {"clean_up_tokenization_spaces", false}};
    const std::pair<const char*, const std::string*> saved[] = {
        {"bos_token", &files.bos_token},
        {"eos_token", &files.eos_token},
        {"pad_token", &files.pad_token},
        {"unk_token", &files.unk_token},
        {"chat_template", &files.chat_template}};
    for (const auto& [key, value] : saved) {
        if (!value->empty()) config.set(key, *value);
    }
    files.to_save.emplace_back("tokenizer.json", files.tokenizer.dump());
    files.to_save.emplace_back("tokenizer_config.json", config.dump(2));
    return files;
}

}  // namespace garam
