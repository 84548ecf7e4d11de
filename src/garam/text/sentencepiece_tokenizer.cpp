#include "garam/text/sentencepiece_tokenizer.h"

#include <algorithm>
#include <set>
#include <vector>

#include "garam/core/error.h"
#include "garam/text/merges_from_scores.h"
#include "garam/text/precompiled_charsmap.h"

namespace garam {
namespace {

using Type = SentencePieceModel::Type;

constexpr const char* kSpaceMark = "\xE2\x96\x81";  // U+2581

Json replace(const char* kind, const char* pattern, const char* content) {
    return Json::Object{
        {"type", "Replace"}, {"pattern", Json::Object{{kind, pattern}}}, {"content", content}};
}

// A regular expression that finds exactly this text.
std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
        if (std::string_view("\\.+*?()|[]{}^$#&-~ \t\n").find(c) != std::string_view::npos &&
            c != '\n' && c != '\t')
            out += '\\';
        out += c;
    }
    return out;
}

Json normalizer_of(const SentencePieceModel& model, bool prepends) {
    Json::Array steps;
    if (!model.precompiled_charsmap.empty())
        steps.push_back(
            Json::Object{{"type", "Precompiled"},
                         {"precompiled_charsmap", to_base64(model.precompiled_charsmap)}});
    if (model.remove_extra_whitespaces) {
        // Spaces only: line ends are left alone.
        steps.push_back(replace("Regex", "\\A +| +\\z", ""));
        steps.push_back(replace("Regex", " {2,}", " "));
    }
    if (prepends) steps.push_back(Json::Object{{"type", "Prepend"}, {"prepend", " "}});
    if (model.escape_whitespaces) steps.push_back(replace("String", " ", kSpaceMark));
    return tokenizer_json::sequence("normalizers", std::move(steps));
}

// The pattern of all user-defined pieces, longest first; empty: there are none.
std::string user_defined_pattern(const SentencePieceModel& model) {
    std::vector<std::string> texts;
    for (const SentencePieceModel::Piece& piece : model.pieces)
        if (piece.type == Type::user_defined && !piece.text.empty()) texts.push_back(piece.text);
    std::stable_sort(texts.begin(), texts.end(), [](const std::string& a, const std::string& b) {
        return a.size() > b.size();
    });
    std::string pattern;
    for (const std::string& text : texts)
        pattern += (pattern.empty() ? "" : "|") + escaped(text);
    return pattern;
}

Json unigram(const SentencePieceModel& model) {
    Json::Array vocabulary;
    vocabulary.reserve(model.pieces.size());
    for (const SentencePieceModel::Piece& piece : model.pieces)
        vocabulary.push_back(Json::Array{piece.text, static_cast<double>(piece.score)});
    return Json::Object{{"type", "Unigram"},
                        {"unk_id", model.unk_id},
                        {"vocab", std::move(vocabulary)},
                        {"byte_fallback", model.byte_fallback}};
}

Json bpe(const SentencePieceModel& model, bool ignore_merges) {
    Json::Object vocabulary;
    vocabulary.reserve(model.pieces.size());
    std::vector<ScoredPiece> scored;
    for (std::size_t id = 0; id < model.pieces.size(); ++id) {
        const SentencePieceModel::Piece& piece = model.pieces[id];
        vocabulary.emplace_back(piece.text, static_cast<std::int64_t>(id));
        scored.push_back({&piece.text, static_cast<double>(piece.score), piece.type == Type::normal,
                          piece.type == Type::normal});
    }
    return Json::Object{{"type", "BPE"},
                        {"dropout", nullptr},
                        {"unk_token", model.pieces[static_cast<std::size_t>(model.unk_id)].text},
                        {"continuing_subword_prefix", nullptr},
                        {"end_of_word_suffix", nullptr},
                        {"fuse_unk", true},
                        {"byte_fallback", model.byte_fallback},
                        {"ignore_merges", ignore_merges},
                        {"vocab", std::move(vocabulary)},
                        {"merges", merges_from_scores(scored)}};
}

}  // namespace

Json sentencepiece_tokenizer(const SentencePieceModel& model, const std::string& source,
                             bool legacy) {
    using Kind = SentencePieceModel::Kind;
    if (model.kind != Kind::unigram && model.kind != Kind::bpe)
        throw Error(source + ": a SentencePiece model of kind " +
                    (model.kind == Kind::word ? "word" : "char") +
                    " is not supported; supported are unigram and bpe");
    if (model.treat_whitespace_as_suffix)
        throw Error(source + ": treat_whitespace_as_suffix is not supported");
    if (model.unk_id < 0 || static_cast<std::size_t>(model.unk_id) >= model.pieces.size())
        throw Error(source + ": unk_id is " + std::to_string(model.unk_id) + ", but there are " +
                    std::to_string(model.pieces.size()) + " pieces");
    const bool first_only = model.add_dummy_prefix && !legacy && model.escape_whitespaces;
    Json::Array cuts;
    if (first_only)
        cuts.push_back(Json::Object{{"type", "Metaspace"},
                                    {"replacement", kSpaceMark},
                                    {"prepend_scheme", "first"},
                                    {"split", false}});
    // User-defined pieces are found in the normalised text. Where its normalisation leaves them as they are,
    // they are added tokens (Gemma has thousands); else a pattern cuts them out.
    const bool as_tokens = !model.add_dummy_prefix && !model.remove_extra_whitespaces &&
                           model.precompiled_charsmap.empty();
    const std::string user_defined = as_tokens ? std::string() : user_defined_pattern(model);
    if (!user_defined.empty()) cuts.push_back(tokenizer_json::split(user_defined.c_str()));

    Json::Array decoders;
    if (model.escape_whitespaces) decoders.push_back(replace("String", kSpaceMark, " "));
    if (model.byte_fallback) decoders.push_back(Json::Object{{"type", "ByteFallback"}});
    decoders.push_back(Json::Object{{"type", "Fuse"}});
    if (model.add_dummy_prefix)
        decoders.push_back(
            Json::Object{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});

    Json::Array added;
    for (std::size_t id = 0; id < model.pieces.size(); ++id) {
        const SentencePieceModel::Piece& piece = model.pieces[id];
        const bool special = piece.type == Type::control || piece.type == Type::unknown;
        const bool taken = special || (as_tokens && piece.type == Type::user_defined);
        if (!taken || piece.text.empty()) continue;
        AddedToken token;
        token.id = static_cast<std::int32_t>(id);
        token.content = piece.text;
        token.special = special;
        token.normalized = !special;
        added.push_back(tokenizer_json::added_token(token));
    }
    return tokenizer_json::document(
        std::move(added), normalizer_of(model, model.add_dummy_prefix && !first_only),
        cuts.empty() ? Json() : tokenizer_json::sequence("pretokenizers", std::move(cuts)), Json(),
        tokenizer_json::sequence("decoders", std::move(decoders)),
        model.kind == Kind::unigram ? unigram(model) : bpe(model, !user_defined.empty()));
}

void describe_sentencepiece(const std::filesystem::path& file, const Json& config,
                            const std::string& model_type, TokenizerFiles& files) {
    files.source = file.string();
    SentencePieceModel model = read_sentencepiece_model(file);

    // Names that the configuration gives to pieces (an unused one that became a special token).
    std::set<std::string, std::less<>> own;
    for (const SentencePieceModel::Piece& piece : model.pieces)
        own.insert(piece.text);
    for (const AddedToken& token : files.added_tokens) {
        const auto id = static_cast<std::size_t>(token.id);
        if (id < model.pieces.size() && !own.contains(token.content))
            model.pieces[id].text = token.content;
    }
    const auto role = [&](std::string& name, std::int64_t id) {
        if (name.empty() && id >= 0 && static_cast<std::size_t>(id) < model.pieces.size())
            name = model.pieces[static_cast<std::size_t>(id)].text;
    };
    role(files.bos_token, model.bos_id);
    role(files.eos_token, model.eos_id);
    role(files.pad_token, model.pad_id);
    role(files.unk_token, model.unk_id);

    std::string kind = model_type;
    bool legacy = true;
    if (const Json* name = config.find("tokenizer_class"); name != nullptr && name->is_string())
        kind = name->string();
    if (const Json* flag = config.find("legacy"); flag != nullptr && flag->is_bool())
        legacy = flag->boolean();
    const auto is = [&](std::initializer_list<std::string_view> names) {
        return std::any_of(names.begin(), names.end(),
                           [&](std::string_view name) { return kind.starts_with(name); });
    };
    const bool is_t5 = is({"T5", "MT5", "t5", "mt5", "umt5"});
    const bool adds_bos =
        is({"Llama", "CodeLlama", "Gemma", "llama", "mistral", "mixtral", "gemma"});
    if (!files.add_bos && adds_bos && !files.bos_token.empty()) files.add_bos = true;
    if (!files.add_eos && is_t5 && !files.eos_token.empty()) files.add_eos = true;
    if (is({"T5", "t5"})) {
        // Not in the file: sentinels behind its pieces, the highest number first.
        std::int64_t sentinels = 100;
        if (const Json* given = config.find("extra_ids"); given != nullptr && given->is_int())
            sentinels = std::clamp<std::int64_t>(given->integer(), 0, 10000);
        own.merge(contents_of(files.added_tokens));
        const auto last = static_cast<std::int64_t>(model.pieces.size()) + sentinels - 1;
        for (std::int64_t i = 0; i < sentinels; ++i) {
            const std::string name = "<extra_id_" + std::to_string(i) + ">";
            if (own.insert(name).second)
                files.added_tokens.push_back(AddedToken::parse(
                    Json::Object{{"content", name}, {"special", true}}, last - i, files.source));
        }
    }
    files.tokenizer = sentencepiece_tokenizer(model, files.source, legacy);
}

}  // namespace garam
