// Reads the tokenizer of a Hugging Face folder.
#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "garam/core/error.h"
#include "garam/text/chat_template_source.h"
#include "garam/text/sentencepiece_tokenizer.h"
#include "garam/text/tokenizer_files.h"
#include "garam/text/unicode.h"
#include "garam/text/vocabulary.h"

namespace garam {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream content;
    content << file.rdbuf();
    if (!file) throw Error(path.string() + ": cannot be read");
    return content.str();
}

// Lines "left right", most frequent first; a "#version" line may come first.
Json::Array read_merges(const fs::path& path) {
    const std::string text = read_text(path);
    if (const std::size_t bad = first_invalid_utf8(text); bad != std::string::npos)
        throw Error(path.string() + ": not valid UTF-8 at byte " + std::to_string(bad));
    Json::Array merges;
    std::size_t number = 0;
    for (std::size_t at = 0; at < text.size();) {
        std::size_t end = text.find('\n', at);
        if (end == std::string::npos) end = text.size();
        std::string_view line = std::string_view(text).substr(at, end - at);
        at = end + 1;
        ++number;
        if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
        if (line.empty() || line.substr(0, 8) == "#version") continue;
        if (std::count(line.begin(), line.end(), ' ') != 1)
            throw Error(path.string() + ", line " + std::to_string(number) + ": \"" +
                        std::string(line) + "\" is not two tokens with a space between");
        merges.emplace_back(line);
    }
    return merges;
}

std::string text_at(const Json& object, std::string_view key) {
    const Json* value = object.find(key);
    return value != nullptr && value->is_string() ? value->string() : std::string();
}

bool has_digit(const Json::Array& merges) {
    return std::any_of(merges.begin(), merges.end(), [](const Json& merge) {
        const std::string& line = merge.string();
        return std::any_of(line.begin(), line.end(), [](char c) { return c >= '0' && c <= '9'; });
    });
}

// The tokenizer.json that vocab.json and merges.txt stand for, given the tokenizer's class.
Json from_vocabulary_and_merges(const fs::path& folder, const std::string& tokenizer_class,
                                const std::string& model_type, bool add_prefix_space) {
    using tokenizer_json::byte_level;
    using tokenizer_json::kQwen2Pattern;
    using tokenizer_json::sequence;
    using tokenizer_json::split;
    constexpr std::size_t kLearntVocabulary = 1000;
    Json vocabulary = Json::parse_file(folder / "vocab.json");
    vocabulary.object((folder / "vocab.json").string());
    Json::Array merges = read_merges(folder / "merges.txt");

    Json normalizer;
    Json pre_tokenizer;
    const auto named = [&](std::string_view name) {
        return tokenizer_class == name || tokenizer_class == std::string(name) + "Fast";
    };
    if (named("Qwen2Tokenizer") || (tokenizer_class.empty() && model_type == "qwen2")) {
        normalizer = Json::Object{{"type", "NFC"}};
        pre_tokenizer = sequence("pretokenizers", {split(kQwen2Pattern), byte_level(false, false)});
    } else if (named("GPT2Tokenizer") || tokenizer_class.empty()) {
        // A learnt vocabulary without one digit in its merges (EXAONE's, SmolLM's) was learnt on text
        // whose digits had been split off, and is used so; the class name does not say it.
        const bool splits_digits = merges.size() >= kLearntVocabulary && !has_digit(merges);
        pre_tokenizer = splits_digits ? tokenizer_json::digits_then_byte_level()
                                      : byte_level(add_prefix_space, true);
    } else {
        throw Error(
            folder.string() + ": tokenizer class " + tokenizer_class +
            " needs a tokenizer.json; from vocab.json and merges.txt alone GPT2Tokenizer and "
            "Qwen2Tokenizer are supported");
    }
    Json model = Json::Object{{"type", "BPE"},
                              {"dropout", nullptr},
                              {"unk_token", nullptr},
                              {"continuing_subword_prefix", ""},
                              {"end_of_word_suffix", ""},
                              {"fuse_unk", false},
                              {"byte_fallback", false},
                              {"ignore_merges", false},
                              {"vocab", std::move(vocabulary)},
                              {"merges", std::move(merges)}};
    return tokenizer_json::document({}, std::move(normalizer), std::move(pre_tokenizer),
                                    byte_level(true, true), byte_level(true, true),
                                    std::move(model));
}

// A token's name: a string or {"content": ...}; empty when absent or null.
std::string token_name(const Json& config, std::string_view key, const std::string& where) {
    const Json* value = config.find(key);
    if (value == nullptr || value->is_null()) return {};
    if (value->is_object())
        return value->at("content", where + "." + std::string(key)).string(where);
    return value->string(where + "." + std::string(key));
}

std::optional<bool> flag_at(const Json& config, std::string_view key, const std::string& where) {
    const Json* value = config.find(key);
    if (value == nullptr || value->is_null()) return std::nullopt;
    return value->boolean(where + "." + std::string(key));
}

void read_config(const fs::path& folder, const Json& config, TokenizerFiles& files) {
    const std::string where = (folder / "tokenizer_config.json").string();
    files.add_bos = flag_at(config, "add_bos_token", where);
    files.add_eos = flag_at(config, "add_eos_token", where);
    Json map;
    const fs::path map_file = folder / "special_tokens_map.json";
    if (fs::exists(map_file)) map = Json::parse_file(map_file);
    const auto role = [&](std::string_view key) {
        const std::string name = token_name(config, key, where);
        return name.empty() ? token_name(map, key, map_file.string()) : name;
    };
    files.bos_token = role("bos_token");
    files.eos_token = role("eos_token");
    files.pad_token = role("pad_token");
    files.unk_token = role("unk_token");
    for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
        const Json* list = config.find(key);
        if (list == nullptr || !list->is_array()) continue;
        for (const Json& token : list->array()) {
            if (token.is_string()) files.special_tokens.push_back(token.string());
        }
    }
    if (const Json* added = config.find("added_tokens_decoder")) {
        for (const auto& [id, description] : added->object(where + ".added_tokens_decoder")) {
            const std::string here = where + ".added_tokens_decoder." + id;
            if (id.empty() || id.size() > 9 || id.find_first_not_of("0123456789") != id.npos)
                throw Error(here + ": the id is not a number in range");
            files.added_tokens.push_back(AddedToken::parse(description, std::stol(id), here));
        }
    }
    const fs::path added_file = folder / "added_tokens.json";
    if (fs::exists(added_file)) {
        const Json added = Json::parse_file(added_file);
        std::set<std::string, std::less<>> known = contents_of(files.added_tokens);
        for (const auto& [content, id] : added.object(added_file.string())) {
            if (!known.insert(content).second) continue;
            const std::string here = added_file.string() + ": " + content;
            files.added_tokens.push_back(
                AddedToken::parse(Json::Object{{"content", content}}, id.integer(here), here));
        }
    }
    ChatTemplateSource chat = chat_template_of_folder(folder, config);
    files.chat_template = std::move(chat.source);
    files.tool_chat_template = std::move(chat.tool_use);
}

// Lists the tokens that have a role among the added ones, for readers who look only there.
void add_roles(TokenizerFiles& files) {
    const Json& vocabulary = files.tokenizer.at("model").at("vocab");
    std::set<std::string, std::less<>> listed = contents_of(files.added_tokens);
    listed.insert("");
    std::vector<std::string> names = files.special_tokens;
    names.insert(names.end(), {files.bos_token, files.eos_token, files.pad_token, files.unk_token});
    for (const std::string& name : names) {
        if (!listed.insert(name).second) continue;
        const Json* id = vocabulary.find(name);
        if (id == nullptr) continue;
        files.added_tokens.push_back(AddedToken::parse(
            Json::Object{{"content", name}, {"special", true}},
            id->integer(files.source + ": vocab[\"" + name + "\"]"), files.source));
    }
}

fs::path sentencepiece_file(const fs::path& folder) {
    for (const char* name : {"tokenizer.model", "spiece.model"})
        if (fs::exists(folder / name)) return folder / name;
    return {};
}

// The post-processor that add_bos and add_eos mean, for readers of tokenizer.json alone.
void put_around(TokenizerFiles& files) {
    std::optional<std::pair<std::string, std::int64_t>> around[2];
    const std::pair<bool, const std::string*> wanted[] = {
        {files.add_bos.value_or(false), &files.bos_token},
        {files.add_eos.value_or(false), &files.eos_token}};
    for (const Json& token : files.tokenizer.at("added_tokens").array())
        for (std::size_t i = 0; i < 2; ++i)
            if (wanted[i].first && token.at("content").string() == *wanted[i].second)
                around[i].emplace(*wanted[i].second, token.at("id").integer());
    if (around[0] || around[1])
        files.tokenizer.set("post_processor",
                            tokenizer_json::template_processing(around[0] ? &*around[0] : nullptr,
                                                                around[1] ? &*around[1] : nullptr));
}

// Saved as the tokenizer.json that the files mean: their readers have to guess the pipeline.
void save_described(const Json& config, TokenizerFiles& files) {
    std::vector<std::pair<std::int64_t, Json>> added;
    std::set<std::string, std::less<>> known;
    for (const Json& token : files.tokenizer.at("added_tokens").array()) {
        added.emplace_back(token.at("id").integer(), token);
        known.insert(token.at("content").string());
    }
    for (const AddedToken& token : files.added_tokens) {
        if (known.insert(token.content).second)
            added.emplace_back(token.id, tokenizer_json::added_token(token));
    }
    // Readers of the list alone number those that they do not know in its order.
    std::stable_sort(added.begin(), added.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    Json::Array list;
    for (auto& [id, token] : added)
        list.push_back(std::move(token));
    files.tokenizer.set("added_tokens", std::move(list));
    Json saved = config.is_null() ? Json(Json::Object{}) : config;
    saved.set("tokenizer_class", "PreTrainedTokenizerFast");
    const std::pair<const char*, const std::string*> roles[] = {{"bos_token", &files.bos_token},
                                                                {"eos_token", &files.eos_token},
                                                                {"pad_token", &files.pad_token},
                                                                {"unk_token", &files.unk_token}};
    for (const auto& [key, name] : roles) {
        if (!name->empty()) saved.set(key, *name);
    }
    files.to_save.emplace_back("tokenizer.json", files.tokenizer.dump());
    files.to_save.emplace_back("tokenizer_config.json", saved.dump(2));
}

// Ids that config.json gives, for folders whose tokenizer files name no roles.
void roles_from_model_config(const Json& config, TokenizerFiles& files) {
    const Json* model = files.tokenizer.find("model");
    const Json* vocabulary = model == nullptr ? nullptr : model->find("vocab");
    if (vocabulary == nullptr || !(vocabulary->is_object() || vocabulary->is_array())) return;
    const auto fill = [&](std::string& role, std::string_view key) {
        const Json* id = config.find(key);
        if (!role.empty() || id == nullptr || !id->is_int()) return;
        if (vocabulary->is_array()) {  // Unigram: pieces with their scores, by id
            const Json::Array& pieces = vocabulary->array();
            if (id->integer() < 0 || id->integer() >= static_cast<std::int64_t>(pieces.size()))
                return;
            const Json& piece = pieces[static_cast<std::size_t>(id->integer())];
            if (piece.is_array() && !piece.array().empty() && piece.array()[0].is_string())
                role = piece.array()[0].string();
            return;
        }
        for (const auto& [token, value] : vocabulary->object()) {
            if (value.is_int() && value.integer() == id->integer()) role = token;
        }
    };
    fill(files.bos_token, "bos_token_id");
    fill(files.eos_token, "eos_token_id");
    fill(files.pad_token, "pad_token_id");
}

}  // namespace

TokenizerFiles read_huggingface_tokenizer(const fs::path& folder) {
    TokenizerFiles files;
    Json config;
    const fs::path config_file = folder / "tokenizer_config.json";
    if (fs::exists(config_file)) {
        config = Json::parse_file(config_file);
        config.object(config_file.string());
    }
    Json model_config;
    if (fs::exists(folder / "config.json")) model_config = Json::parse_file(folder / "config.json");

    const auto keep = [&](const char* name) {
        if (fs::exists(folder / name)) files.to_save.emplace_back(name, read_text(folder / name));
    };
    read_config(folder, config, files);
    if (const fs::path file = folder / "tokenizer.json"; fs::exists(file)) {
        files.source = file.string();
        files.tokenizer = Json::parse_file(file);
        files.tokenizer.object(files.source);
        for (const char* name : {"tokenizer.json", "tokenizer_config.json", "vocab.json",
                                 "merges.txt", "added_tokens.json"})
            keep(name);
    } else if (fs::exists(folder / "vocab.json") && fs::exists(folder / "merges.txt")) {
        files.source = (folder / "vocab.json").string();
        const bool prefix =
            flag_at(config, "add_prefix_space", config_file.string()).value_or(false);
        const std::string tokenizer_class = text_at(config, "tokenizer_class");
        files.tokenizer = from_vocabulary_and_merges(folder, tokenizer_class,
                                                     text_at(model_config, "model_type"), prefix);
        if (config.is_null() && files.tokenizer.at("model").at("vocab").find("<|endoftext|>"))
            files.bos_token = files.eos_token = files.unk_token = "<|endoftext|>";  // GPT-2's
        add_roles(files);
        save_described(config, files);
    } else if (const fs::path model = sentencepiece_file(folder); !model.empty()) {
        describe_sentencepiece(model, config, text_at(model_config, "model_type"), files);
        add_roles(files);
        put_around(files);
        save_described(config, files);
    } else {
        const char* has = "";
        for (const auto& [name, said] :
             {std::pair{"vocab.json",
                        " (vocab.json alone is no tokenizer: its merges.txt is missing)"},
              std::pair{"vocab.txt",
                        " (vocab.txt alone is not supported; save the tokenizer with "
                        "Transformers to get a tokenizer.json)"},
              std::pair{
                  "sentencepiece.bpe.model",
                  " (sentencepiece.bpe.model alone is not supported, since its ids are moved; "
                  "save the tokenizer with Transformers to get a tokenizer.json)"},
              std::pair{"tekken.json", " (tekken.json is not supported)"}})
            if (*has == '\0' && fs::exists(folder / name)) has = said;
        throw Error(folder.string() +
                    ": no tokenizer: neither tokenizer.json nor vocab.json with "
                    "merges.txt nor tokenizer.model is there" +
                    has);
    }
    for (const char* name : {"special_tokens_map.json", "chat_template.jinja", "chat_template.json",
                             "additional_chat_templates/tool_use.jinja"})
        keep(name);
    roles_from_model_config(model_config, files);
    return files;
}

}  // namespace garam
