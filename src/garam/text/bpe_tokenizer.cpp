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
    model_ =
        std::make_unique<BpeModel>(model, pre_tokenizer_.byte_level(), vocabulary_, files.source);
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
    const std::string where = files.source + ": model";
    const Json& model = files.tokenizer.at("model", files.source);
    if (const Json* type = model.find("type"); type != nullptr && type->string(where) != "BPE")
        throw Error(where + " of type \"" + type->string() +
                    "\" is not supported; supported is BPE");
    const Json& vocab = model.at("vocab", where);
    for (const auto& [token, id] : vocab.object(where + ".vocab"))
        vocabulary_.add(token, id.integer(where + ".vocab[\"" + token + "\"]"));
    if (vocabulary_.size() == 0) throw Error(where + ".vocab is empty");
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
    special_.resize(static_cast<std::size_t>(vocabulary_.size()), false);
    for (const AddedToken& token : tokens) {
        if (token.special) special_[static_cast<std::size_t>(token.id)] = true;
        if (token.normalized && !normalizer_.changes_nothing()) {
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
    if (type != "TemplateProcessing")
        throw Error(where + " \"" + type +
                    "\" is not supported; supported are Sequence, ByteLevel and "
                    "TemplateProcessing");
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
        for (const Json& id : token.at("ids", where).array(where + ".special_tokens")) {
            const std::int64_t value = id.integer(where + ".special_tokens");
            if (value < 0 || value >= vocabulary_.size() ||
                !vocabulary_.has(static_cast<std::int32_t>(value)))
                throw Error(where + ": \"" + name + "\" has the id " + std::to_string(value) +
                            ", which the vocabulary does not have");
            (behind ? suffix_ : prefix_).push_back(static_cast<std::int32_t>(value));
        }
    }
}

void BpeTokenizer::encode_segment(AlignedText text, bool at_start, bool parse_special,
                                  Encoding& out) const {
    std::vector<BpeModel::Token> tokens;
    const auto encode_text = [&](AlignedText segment, bool first) {
        const PieceList list = pre_tokenizer_.apply(std::move(segment), first);
        for (const ByteSpan piece : list.pieces) {
            tokens.clear();
            model_->encode(list.text.view(piece), tokens);
            for (const BpeModel::Token& token : tokens) {
                out.ids.push_back(token.id);
                out.spans.push_back(
                    list.text.source(piece.begin + token.begin, piece.begin + token.end));
            }
        }
    };
    text = normalizer_.apply(std::move(text));
    if (normalized_tokens_.empty()) {
        encode_text(std::move(text), at_start);
        return;
    }
    for (const auto& part : normalized_tokens_.split(text.text(), parse_special)) {
        if (part.id) {
            out.ids.push_back(*part.id);
            out.spans.push_back(text.source(part.span));
        } else {
            AlignedTextBuilder builder(text);
            builder.keep(part.span.begin, part.span.end);
            encode_text(builder.finish(), at_start && part.span.begin == 0);
        }
    }
}

Encoding BpeTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
    if (text.size() > kMaxTextBytes)
        throw Error("a text of " + std::to_string(text.size()) +
                    " bytes is too long to encode at once (at most 1 GiB); cut it up");
    if (const std::size_t bad = first_invalid_utf8(text); bad != std::string_view::npos)
        throw Error("the text is not valid UTF-8 at byte " + std::to_string(bad));
    Encoding out;
    for (const auto& part : raw_tokens_.split(text, options.parse_special_tokens)) {
        if (part.id) {
            out.ids.push_back(*part.id);
            out.spans.push_back(part.span);
        } else {
            const std::size_t size = part.span.end - part.span.begin;
            encode_segment(AlignedText(text.substr(part.span.begin, size), part.span.begin),
                           part.span.begin == 0, options.parse_special_tokens, out);
        }
    }
    if (!options.add_special_tokens) return out;
    // A text that already carries them (a rendered template) gets no second ones.
    const bool begun = out.ids.size() >= prefix_.size() &&
                       std::equal(prefix_.begin(), prefix_.end(), out.ids.begin());
    if (!begun) {
        out.ids.insert(out.ids.begin(), prefix_.begin(), prefix_.end());
        out.spans.insert(out.spans.begin(), prefix_.size(), ByteSpan{0, 0});
    }
    const bool ended = out.ids.size() >= suffix_.size() &&
                       std::equal(suffix_.rbegin(), suffix_.rend(), out.ids.rbegin());
    if (!ended) {
        out.ids.insert(out.ids.end(), suffix_.begin(), suffix_.end());
        out.spans.insert(out.spans.end(), suffix_.size(), ByteSpan{text.size(), text.size()});
    }
    return out;
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
