#include "toy_tokenizer.h"

#include "garam/core/error.h"
#include "garam/core/philox.h"
#include "garam/text/bpe_model.h"
#include "garam/text/tokenizer_files.h"
#include "garam/text/unicode.h"

namespace garam::testing {
namespace {

Json bpe_model(Json::Object vocabulary,
               const std::vector<std::pair<std::string, std::string>>& merges, const Json& unknown,
               bool fallback) {
    Json::Array list;
    std::int64_t next = static_cast<std::int64_t>(vocabulary.size());
    Json vocab = std::move(vocabulary);
    for (const auto& [left, right] : merges) {
        list.push_back(Json::Array{left, right});
        if (vocab.find(left + right) == nullptr) vocab.set(left + right, next++);
    }
    return Json::Object{{"type", "BPE"},
                        {"unk_token", unknown},
                        {"fuse_unk", fallback},
                        {"byte_fallback", fallback},
                        {"vocab", std::move(vocab)},
                        {"merges", std::move(list)}};
}

}  // namespace

Json with(Json document, std::string_view key, Json value) {
    document.set(key, std::move(value));
    return document;
}

Json with_model(const Json& document, std::string_view key, Json value) {
    return with(document, "model", with(document.at("model"), key, std::move(value)));
}

Json added_token(const std::string& content, std::int64_t id,
                 const std::vector<std::string>& flags) {
    Json token = Json::Object{{"id", id},        {"content", content}, {"single_word", false},
                              {"lstrip", false}, {"rstrip", false},    {"normalized", false},
                              {"special", false}};
    for (const std::string& flag : flags)
        token.set(flag, true);
    return token;
}

Json byte_level_json(const std::vector<std::pair<std::string, std::string>>& merges,
                     const std::vector<std::string>& specials, const std::string& bos) {
    Json::Object vocabulary;
    for (std::size_t byte = 0; byte < 256; ++byte) {
        std::string spelled;
        append_utf8(spelled, byte_characters()[byte]);
        vocabulary.emplace_back(spelled, static_cast<std::int64_t>(byte));
    }
    Json model = bpe_model(std::move(vocabulary), merges, nullptr, false);
    auto next = static_cast<std::int64_t>(model.at("vocab").object().size());
    Json::Array added;
    std::pair<std::string, std::int64_t> first{bos, 0};
    for (const std::string& token : specials) {
        if (token == bos) first.second = next;
        added.push_back(added_token(token, next++, {"special"}));
    }
    return tokenizer_json::document(
        std::move(added), nullptr, tokenizer_json::byte_level(false, true),
        tokenizer_json::template_processing(bos.empty() ? nullptr : &first, nullptr),
        tokenizer_json::byte_level(true, true), std::move(model));
}

Json sentencepiece_json(const std::vector<std::string>& pieces,
                        const std::vector<std::pair<std::string, std::string>>& merges) {
    Json::Object vocabulary{{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
    constexpr const char* kDigits = "0123456789ABCDEF";
    for (std::int64_t byte = 0; byte < 256; ++byte)
        vocabulary.emplace_back(std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + ">",
                                3 + byte);
    for (const std::string& piece : pieces)
        vocabulary.emplace_back(piece, static_cast<std::int64_t>(vocabulary.size()));
    const std::pair<std::string, std::int64_t> bos{"<s>", 1};
    const Json pattern = Json::Object{{"String", "▁"}};
    return tokenizer_json::document(
        {added_token("<unk>", 0, {"special"}), added_token("<s>", 1, {"special"}),
         added_token("</s>", 2, {"special"})},
        tokenizer_json::sequence("normalizers",
                                 {Json::Object{{"type", "Prepend"}, {"prepend", "▁"}},
                                  Json::Object{{"type", "Replace"},
                                               {"pattern", Json::Object{{"String", " "}}},
                                               {"content", "▁"}}}),
        nullptr, tokenizer_json::template_processing(&bos, nullptr),
        tokenizer_json::sequence(
            "decoders",
            {Json::Object{{"type", "Replace"}, {"pattern", pattern}, {"content", " "}},
             Json::Object{{"type", "ByteFallback"}}, Json::Object{{"type", "Fuse"}},
             Json::Object{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}),
        bpe_model(std::move(vocabulary), merges, "<unk>", true));
}

std::unique_ptr<Tokenizer> load(const Json& tokenizer, const Json& config) {
    const TempDir folder;
    folder.write("tokenizer.json", tokenizer.dump());
    if (!config.is_null()) folder.write("tokenizer_config.json", config.dump());
    return load_tokenizer(folder.path());
}

std::string load_error(const Json& tokenizer, const Json& config) {
    try {
        load(tokenizer, config);
    } catch (const Error& error) {
        return error.what();
    }
    return {};
}

std::string random_text(std::uint64_t seed, std::size_t characters) {
    Random random(seed);
    std::string text;
    constexpr char32_t kLimits[] = {0x80, 0x250, 0x3000, 0x10000, 0x110000};
    constexpr std::string_view kCommon = "  \n\r\t09aeZ.,'!_";
    for (std::size_t i = 0; i < characters; ++i) {
        if (random.below(2) == 0) {
            text += kCommon[random.below(kCommon.size())];
            continue;
        }
        auto c = static_cast<char32_t>(random.below(kLimits[random.below(5)]));
        if (c >= 0xD800 && c < 0xE000) c = 0xAC00 + (c & 0xFF);
        append_utf8(text, c);
    }
    return text;
}

}  // namespace garam::testing
