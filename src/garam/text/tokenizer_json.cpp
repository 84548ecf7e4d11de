#include "garam/text/tokenizer_files.h"

namespace garam::tokenizer_json {

const char* const kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Json byte_level(bool add_prefix_space, bool use_regex) {
    return Json::Object{{"type", "ByteLevel"},
                        {"add_prefix_space", add_prefix_space},
                        {"trim_offsets", true},
                        {"use_regex", use_regex}};
}

Json split(const char* pattern) {
    return Json::Object{{"type", "Split"},
                        {"pattern", Json::Object{{"Regex", pattern}}},
                        {"behavior", "Isolated"},
                        {"invert", false}};
}

Json sequence(const char* member, Json::Array steps) {
    return Json::Object{{"type", "Sequence"}, {member, std::move(steps)}};
}

Json digits_then_byte_level() {
    return sequence("pretokenizers", {Json::Object{{"type", "Digits"}, {"individual_digits", true}},
                                      byte_level(false, true)});
}

Json template_processing(const std::pair<std::string, std::int64_t>* bos,
                         const std::pair<std::string, std::int64_t>* eos) {
    const auto special = [](const std::string& token, int type) {
        return Json(Json::Object{{"SpecialToken", Json::Object{{"id", token}, {"type_id", type}}}});
    };
    const auto text = [](const char* which, int type) {
        return Json(Json::Object{{"Sequence", Json::Object{{"id", which}, {"type_id", type}}}});
    };
    Json::Array single;
    Json::Array pair;
    Json::Object tokens;
    for (const int type : {0, 1}) {
        Json::Array part;
        if (bos != nullptr) part.push_back(special(bos->first, type));
        part.push_back(text(type == 0 ? "A" : "B", type));
        if (eos != nullptr) part.push_back(special(eos->first, type));
        if (type == 0) single = part;
        pair.insert(pair.end(), part.begin(), part.end());
    }
    for (const auto* token : {bos, eos}) {
        if (token == nullptr || (token == eos && bos != nullptr && bos->first == eos->first))
            continue;
        tokens.emplace_back(token->first, Json::Object{{"id", token->first},
                                                       {"ids", Json::Array{token->second}},
                                                       {"tokens", Json::Array{token->first}}});
    }
    return Json::Object{{"type", "TemplateProcessing"},
                        {"single", std::move(single)},
                        {"pair", std::move(pair)},
                        {"special_tokens", std::move(tokens)}};
}

Json added_token(const AddedToken& token) {
    return Json::Object{{"id", std::int64_t{token.id}},     {"content", token.content},
                        {"single_word", token.single_word}, {"lstrip", token.lstrip},
                        {"rstrip", token.rstrip},           {"normalized", token.normalized},
                        {"special", token.special}};
}

Json document(Json::Array added_tokens, Json normalizer, Json pre_tokenizer, Json post_processor,
              Json decoder, Json model) {
    return Json::Object{{"version", "1.0"},
                        {"truncation", nullptr},
                        {"padding", nullptr},
                        {"added_tokens", std::move(added_tokens)},
                        {"normalizer", std::move(normalizer)},
                        {"pre_tokenizer", std::move(pre_tokenizer)},
                        {"post_processor", std::move(post_processor)},
                        {"decoder", std::move(decoder)},
                        {"model", std::move(model)}};
}

}  // namespace garam::tokenizer_json
