#include "garam/text/new_tokens.h"

#include <algorithm>
#include <set>

#include "garam/core/error.h"
#include "garam/text/bpe_tokenizer.h"

namespace garam {
namespace {

// All that are known, by id: readers of tokenizer.json alone number those that they do not find on from the
// last one, in the order of the list.
Json::Array listed(const TokenizerFiles& files, const std::vector<AddedToken>& fresh) {
    const std::string where = files.source + ": added_tokens";
    std::vector<std::pair<std::int64_t, Json>> tokens;
    std::set<std::string> known;
    if (const Json* list = files.tokenizer.find("added_tokens"); list && !list->is_null()) {
        for (const Json& entry : list->array(where)) {
            tokens.emplace_back(entry.at("id", where).integer(where), entry);
            known.insert(entry.at("content", where).string(where));
        }
    }
    for (const std::vector<AddedToken>* more : {&files.added_tokens, &fresh})
        for (const AddedToken& token : *more)
            if (known.insert(token.content).second)
                tokens.emplace_back(token.id, tokenizer_json::added_token(token));
    std::stable_sort(tokens.begin(), tokens.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    Json::Array result;
    for (auto& [id, token] : tokens)
        result.push_back(std::move(token));
    return result;
}

void add_to_config(Json& config, const std::vector<AddedToken>& fresh) {
    Json decoder{Json::Object{}};
    if (const Json* given = config.find("added_tokens_decoder"); given && given->is_object())
        decoder = *given;
    // Transformers' version 5 writes a list under another name.
    const Json* extra = config.find("extra_special_tokens");
    const char* const key = extra != nullptr && extra->is_array() ? "extra_special_tokens"
                                                                  : "additional_special_tokens";
    Json names{Json::Array{}};
    if (const Json* given = config.find(key); given && given->is_array()) names = *given;
    for (const AddedToken& token : fresh) {
        decoder.set(std::to_string(token.id), Json::Object{{"content", token.content},
                                                           {"lstrip", false},
                                                           {"normalized", false},
                                                           {"rstrip", false},
                                                           {"single_word", false},
                                                           {"special", true}});
        names.push_back(token.content);
    }
    config.set("added_tokens_decoder", std::move(decoder));
    config.set(key, std::move(names));
}

}  // namespace

void add_special_tokens(TokenizerFiles& files, const std::vector<std::string>& tokens) {
    const BpeTokenizer before(files);
    std::vector<AddedToken> fresh;
    std::set<std::string> seen;
    for (const std::string& token : tokens) {
        if (before.id_of(token) || !seen.insert(token).second) continue;
        if (token.empty()) throw Error("a special token to add is empty");
        const std::int64_t id = before.vocab_size() + static_cast<std::int64_t>(fresh.size());
        fresh.push_back(AddedToken::parse(Json::Object{{"content", token}, {"special", true}}, id,
                                          "the special token " + Json(token).dump()));
    }
    if (fresh.empty()) return;
    files.tokenizer.set("added_tokens", listed(files, fresh));
    for (auto& [name, content] : files.to_save) {
        if (name == "tokenizer.json") {
            content = files.tokenizer.dump(2);
        } else if (name == "tokenizer_config.json") {
            Json config = Json::parse(content, name);
            add_to_config(config, fresh);
            content = config.dump(2);
        }
    }
}

}  // namespace garam
