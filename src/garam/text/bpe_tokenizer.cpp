#include "garam/text/bpe_tokenizer.h"

#include <algorithm>
#include <set>

#include "garam/core/error.h"
#include "garam/io/atomic_write.h"
#include "garam/text/unicode.h"

namespace garam {

BpeTokenizer::BpeTokenizer(TokenizerFiles files)
    : vocabulary_(files.source),
      normalizer_(files.tokenizer.find("normalizer"), files.source),
      pre_tokenizer_(files.tokenizer.find("pre_tokenizer"), files.source),
      decoder_(files.tokenizer.find("decoder"), files.source) {
    read_vocabulary(files);
    const Json& model = files.tokenizer.at("model", files.source);
    other_model_ = make_piece_model(model, vocabulary_, files.source);
    // Those models, and affixes of words, are about the spelling of bytes.
    if (other_model_ || BpeModel::has_affixes(model)) pre_tokenizer_.spell_bytes();
    if (!other_model_)
        model_ = std::make_unique<BpeModel>(model, pre_tokenizer_.byte_level(), vocabulary_,
                                            files.source);
    read_added_tokens(files);
    read_post_processor(files.tokenizer.find("post_processor"), files.source);

    const auto role = [&](const std::string& name) {
        return name.empty() ? std::nullopt : vocabulary_.find(name);
    };
    bos_ = role(files.bos_token);
    eos_ = role(files.eos_token);
    pad_ = role(files.pad_token);
    if (files.add_bos || files.add_eos) {
        const auto put = [&](bool wanted, std::optional<std::int32_t> id, const char* key,
                             std::vector<std::int32_t>& where) {
            where.clear();
            if (!wanted) return;
            if (!id)
                throw Error(files.source + ": " + key +
                            " is set, but the tokenizer's files name no such token");
            where.push_back(*id);
        };
        put(files.add_bos.value_or(false), bos_, "add_bos_token", prefix_);
        put(files.add_eos.value_or(false), eos_, "add_eos_token", suffix_);
    }
    if (!bos_ && prefix_.size() == 1) bos_ = prefix_.front();
    chat_template_ = std::move(files.chat_template);
    tool_chat_template_ = std::move(files.tool_chat_template);
    to_save_ = std::move(files.to_save);
}

void BpeTokenizer::read_vocabulary(const TokenizerFiles& files) {
    read_model_vocabulary(files.tokenizer.at("model", files.source), files.source, vocabulary_);
}

void BpeTokenizer::read_added_tokens(const TokenizerFiles& files) {
    std::vector<AddedToken> tokens;
    std::set<std::string, std::less<>> known;
    const auto take = [&](AddedToken token) {
        if (token.content.empty() || !known.insert(token.content).second) return;
        vocabulary_.add(token.content, token.id);
        tokens.push_back(std::move(token));
    };
    const std::string where = files.source + ": added_tokens";
    if (const Json* list = files.tokenizer.find("added_tokens"); list && !list->is_null()) {
        for (const Json& entry : list->array(where))
            take(AddedToken::parse(entry, entry.at("id", where).integer(where + ".id"), where));
    }
    for (const AddedToken& token : files.added_tokens)
        take(token);
    // Tokens with a role are special even where no list says so.
    std::vector<std::string> names = files.special_tokens;
    for (const auto& role : {files.bos_token, files.eos_token, files.pad_token, files.unk_token})
        names.push_back(role);
    for (const std::string& name : names) {
        const auto id = vocabulary_.find(name);
        if (!id) continue;
        AddedToken token;
        token.id = *id;
        token.content = name;
        token.special = true;
        take(token);
    }
    // Normalized tokens are found after the others. Where nothing is normalized and there are no others,
    // that is the same as at once.
    const bool at_once = normalizer_.changes_nothing() &&
                         std::all_of(tokens.begin(), tokens.end(),
                                     [](const AddedToken& token) { return token.normalized; });
    special_.resize(static_cast<std::size_t>(vocabulary_.size()), false);
    for (const AddedToken& token : tokens) {
        if (token.special) special_[static_cast<std::size_t>(token.id)] = true;
        if (token.normalized && !at_once) {
            const std::string spelling = normalizer_.apply(AlignedText(token.content, 0)).text();
            normalized_tokens_.add(token, spelling);
            normalized_spelling_.emplace(token.id, spelling);
        } else {
            raw_tokens_.add(token, token.content);
        }
    }
}

void BpeTokenizer::read_post_processor(const Json* processor, const std::string& source) {
    if (processor == nullptr || processor->is_null()) return;
    const std::string where = source + ": post_processor";
    const std::string& type = processor->at("type", where).string(where + ".type");
    if (type == "Sequence") {
        for (const Json& step : processor->at("processors", where).array(where + ".processors")) {
            if (const Json* inner = step.find("type");
                inner && inner->is_string() && inner->string() == "Sequence")
                throw Error(where + ": a Sequence in a Sequence is not supported");
            read_post_processor(&step, source);
        }
        return;
    }
    if (type == "ByteLevel") return;  // moves offsets only
    if (type == "RobertaProcessing" || type == "BertProcessing") {
        for (const char* key : {"cls", "sep"}) {
            const Json::Array& token = processor->at(key, where).array(where + "." + key);
            if (token.size() != 2) throw Error(where + "." + key + " is not a token with its id");
            put_around(token[1], key == std::string_view("sep"), token[0].string(where), where);
        }
        return;
    }
    if (type != "TemplateProcessing")
        throw Error(where + " \"" + type +
                    "\" is not supported; supported are Sequence, ByteLevel, TemplateProcessing, "
                    "RobertaProcessing and BertProcessing");
    bool behind = false;
    for (const Json& part : processor->at("single", where).array(where + ".single")) {
        if (part.find("Sequence") != nullptr) {
            behind = true;
            continue;
        }
        const std::string& name = part.at("SpecialToken", where + ".single")
                                      .at("id", where + ".single")
                                      .string(where + ".single");
        const Json& token = processor->at("special_tokens", where).at(name, where);
        for (const Json& id : token.at("ids", where).array(where + ".special_tokens"))
            put_around(id, behind, name, where);
    }
}

void BpeTokenizer::put_around(const Json& id, bool behind, const std::string& name,
                              const std::string& where) {
    const std::int64_t value = id.integer(where + ": \"" + name + "\"");
    if (value < 0 || value >= vocabulary_.size() ||
        !vocabulary_.has(static_cast<std::int32_t>(value)))
        throw Error(where + ": \"" + name + "\" has the id " + std::to_string(value) +
                    ", which the vocabulary does not have");
    constexpr std::size_t kMostAround = 1024;
    if (prefix_.size() + suffix_.size() >= kMostAround)
        throw Error(where + ": more than 1024 tokens around a text are not supported");
    (behind ? suffix_ : prefix_).push_back(static_cast<std::int32_t>(value));
}

namespace {

// Memory that a thread keeps from one text to the next; never more than this after a long one.
constexpr std::size_t kKept = std::size_t{1} << 16;  // entries

template <class T>
class Kept {
  public:
    explicit Kept(std::vector<T>& kept) : kept_(kept) { kept_.clear(); }
    ~Kept() {
        if (kept_.capacity() > kKept) kept_ = {};
    }
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;

  private:
    std::vector<T>& kept_;
};

}  // namespace

// Where neither normalizer nor pre-tokenizer changes a text, the ids say where the tokens are.
void BpeTokenizer::encode_unchanged(std::string_view text, std::size_t begin,
                                    const Found& found) const {
    thread_local std::vector<ByteSpan> pieces;
    const Kept<ByteSpan> kept(pieces);
    pre_tokenizer_.cut(text, pieces);
    const std::size_t before = found.ids.size();
    model_->encode_ids(text, pieces, found.ids);
    if (found.spans == nullptr) return;
    std::vector<ByteSpan>& spans = *found.spans;
    spans.resize(found.ids.size());
    for (std::size_t i = before, at = begin; i < spans.size(); ++i) {
        const std::size_t end = at + model_->byte_length(found.ids[i]);
        spans[i] = {at, end};
        at = end;
    }
}

void BpeTokenizer::encode_aligned(AlignedText text, bool at_start, bool parse_special,
                                  const Found& found) const {
    std::vector<BpeModel::Token> tokens;
    const auto encode_text = [&](AlignedText segment, bool first) {
        const PieceList list = pre_tokenizer_.apply(std::move(segment), first);
        for (const ByteSpan piece : list.pieces) {
            tokens.clear();
            if (other_model_) {
                other_model_->encode(list.text.view(piece), tokens);
            } else {
                model_->encode(list.text.view(piece), tokens);
            }
            for (const BpeModel::Token& token : tokens)
                found.add(token.id,
                          list.text.source(piece.begin + token.begin, piece.begin + token.end));
        }
    };
    text = normalizer_.apply(std::move(text));
    if (normalized_tokens_.empty()) {
        encode_text(std::move(text), at_start);
        return;
    }
    std::vector<AddedTokenMatcher::Part> parts;
    normalized_tokens_.split(text.text(), parse_special, parts);
    if (parts.size() == 1 && !parts.front().id) {
        encode_text(std::move(text), at_start);
        return;
    }
    for (const auto& part : parts) {
        if (part.id) {
            found.add(*part.id, text.source(part.span));
        } else {
            AlignedTextBuilder builder(text);
            builder.keep(part.span.begin, part.span.end);
            encode_text(builder.finish(), at_start && part.span.begin == 0);
        }
    }
}

void BpeTokenizer::encode(std::string_view text, const EncodeOptions& options,
                          const Found& found) const {
    if (text.size() > kMaxTextBytes)
        throw Error("a text of " + std::to_string(text.size()) +
                    " bytes is too long to encode at once (at most 1 GiB); cut it up");
    if (const std::size_t bad = first_invalid_utf8(text); bad != std::string_view::npos)
        throw Error("the text is not valid UTF-8 at byte " + std::to_string(bad));
    const bool direct =
        model_ && pre_tokenizer_.only_cuts() && model_->covers_all() && normalized_tokens_.empty();
    thread_local std::vector<AddedTokenMatcher::Part> parts;
    const Kept<AddedTokenMatcher::Part> kept(parts);
    raw_tokens_.split(text, options.parse_special_tokens, parts);
    for (const auto& part : parts) {
        const std::string_view segment =
            text.substr(part.span.begin, part.span.end - part.span.begin);
        if (part.id) {
            found.add(*part.id, part.span);
        } else if (direct && normalizer_.leaves(segment)) {
            encode_unchanged(segment, part.span.begin, found);
        } else {
            encode_aligned(AlignedText(segment, part.span.begin), part.span.begin == 0,
                           options.parse_special_tokens, found);
        }
    }
    if (!options.add_special_tokens) return;
    // A text that already carries them (a rendered template) gets no second ones.
    std::vector<std::int32_t>& ids = found.ids;
    const bool begun =
        ids.size() >= prefix_.size() && std::equal(prefix_.begin(), prefix_.end(), ids.begin());
    if (!begun) {
        ids.insert(ids.begin(), prefix_.begin(), prefix_.end());
        if (found.spans != nullptr)
            found.spans->insert(found.spans->begin(), prefix_.size(), ByteSpan{0, 0});
    }
    const bool ended =
        ids.size() >= suffix_.size() && std::equal(suffix_.rbegin(), suffix_.rend(), ids.rbegin());
    if (!ended) {
        for (const std::int32_t id : suffix_)
            found.add(id, {text.size(), text.size()});
    }
}

// Results are copied out of memory that the thread keeps: they are as large as they have to be.
Encoding BpeTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
    thread_local std::vector<std::int32_t> ids;
    thread_local std::vector<ByteSpan> spans;
    const Kept<std::int32_t> kept_ids(ids);
    const Kept<ByteSpan> kept_spans(spans);
    encode(text, options, {ids, &spans});
    return {ids, spans};
}

std::vector<std::int32_t> BpeTokenizer::encode_ids(std::string_view text,
                                                   const EncodeOptions& options) const {
    thread_local std::vector<std::int32_t> ids;
    const Kept<std::int32_t> kept(ids);
    encode(text, options, {ids, nullptr});
    return ids;
}

std::string BpeTokenizer::decode(std::span<const std::int32_t> ids,
                                 bool skip_special_tokens) const {
    std::vector<std::string> tokens;
    tokens.reserve(ids.size());
    for (const std::int32_t id : ids) {
        if (!vocabulary_.has(id) || (skip_special_tokens && is_special(id))) continue;
        const auto spelling = normalized_spelling_.find(id);
        tokens.push_back(spelling == normalized_spelling_.end() ? vocabulary_.token(id)
                                                                : spelling->second);
    }
    return decoder_.decode(std::move(tokens));
}

void BpeTokenizer::save(const std::filesystem::path& folder) const {
    for (const auto& [name, content] : to_save_) {
        std::filesystem::create_directories((folder / name).parent_path());
        write_file_atomically(folder / name, content);
    }
}

}  // namespace garam
