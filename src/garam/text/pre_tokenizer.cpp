#include "garam/text/pre_tokenizer.h"

#include <utility>

#include "garam/core/error.h"
#include "garam/text/bpe_model.h"
#include "garam/text/character_filter.h"
#include "garam/text/character_split.h"

namespace garam {
namespace {

constexpr std::size_t kMaxSteps = 32;

void find_literal(std::string_view text, const std::string& literal, std::vector<ByteSpan>& found) {
    for (std::size_t at = text.find(literal); at != std::string_view::npos;
         at = text.find(literal, at + literal.size()))
        found.push_back({at, at + literal.size()});
}

bool optional_flag(const Json& description, std::string_view key, bool otherwise,
                   const std::string& where) {
    const Json* value = description.find(key);
    return value == nullptr || value->is_null() ? otherwise
                                                : value->boolean(where + "." + std::string(key));
}

}  // namespace

PreTokenizer::PreTokenizer(const Json* description, const std::string& source) {
    if (description != nullptr && !description->is_null()) add(*description, source);
    for (const Step& step : steps_)
        only_cuts_ = only_cuts_ && step.prefix == Prefix::never && step.replacement.empty() &&
                     step.behavior != Behavior::removed && !step.spells_bytes;
    const auto known = [&](std::size_t step) {
        const Step& s = steps_[step];
        const bool plain = s.pattern && s.behavior == Behavior::isolated && !s.invert;
        return plain ? s.pattern->known() : KnownPattern::none;
    };
    std::erase_if(steps_, [](const Step& step) {
        return step.prefix == Prefix::never && step.replacement.empty() && !step.pattern &&
               !step.find && step.literal.empty() && !step.spells_bytes;
    });
    if (!only_cuts_) return;
    // `number` alone leaves text between its matches.
    if (steps_.size() == 1 && known(0) != KnownPattern::number) scanner_ = known(0);
    if (steps_.size() == 2 && known(0) == KnownPattern::number && known(1) == KnownPattern::gpt2)
        scanner_ = KnownPattern::numbers_in_gpt2;
}

void PreTokenizer::add(const Json& description, const std::string& source) {
    const std::string where = source + ": pre_tokenizer";
    const std::string& type = description.at("type", where).string(where + ".type");
    if (byte_level_) spell_bytes();  // Falcon's sequence goes on behind it
    if (steps_.size() >= kMaxSteps) throw Error(where + ": more than 32 steps");
    Step step;
    if (type == "Sequence") {
        for (const Json& part :
             description.at("pretokenizers", where).array(where + ".pretokenizers"))
            add(part, source);
    } else if (type == "Split") {
        const Json& pattern = description.at("pattern", where);
        if (const Json* expression = pattern.find("Regex")) {
            step.pattern.emplace(expression->string(where + ".pattern.Regex"), where);
        } else {
            step.literal = pattern.at("String", where + ".pattern").string(where + ".pattern");
            if (step.literal.empty()) throw Error(where + ": Split at an empty string");
        }
        step.invert = optional_flag(description, "invert", false, where);
        const std::string& behavior = description.at("behavior", where).string(where + ".behavior");
        step.behavior = behavior_of(behavior, where);
        steps_.push_back(std::move(step));
    } else if (type == "Digits") {
        step.pattern.emplace("\\p{N}", where);
        step.behavior = optional_flag(description, "individual_digits", false, where)
                            ? Behavior::isolated
                            : Behavior::contiguous;
        steps_.push_back(std::move(step));
    } else if (type == "ByteLevel") {
        if (optional_flag(description, "add_prefix_space", true, where)) {
            step.prefix_text = " ";
            step.prefix = Prefix::always;
        }
        if (optional_flag(description, "use_regex", true, where))
            step.pattern.emplace(kGpt2Pattern, where);
        steps_.push_back(std::move(step));
        byte_level_ = true;
    } else if (type == "Metaspace") {
        step.replacement = description.at("replacement", where).string(where + ".replacement");
        if (step.replacement.empty()) throw Error(where + ": Metaspace with an empty replacement");
        step.prefix_text = step.replacement;
        const Json* scheme = description.find("prepend_scheme");
        const std::string named = scheme != nullptr ? scheme->string(where + ".prepend_scheme")
                                  : optional_flag(description, "add_prefix_space", true, where)
                                      ? "always"
                                      : "never";
        if (named == "always") {
            step.prefix = Prefix::always;
        } else if (named == "first") {
            step.prefix = Prefix::first;
        } else if (named != "never") {
            throw Error(where + ": Metaspace prepend_scheme \"" + named +
                        "\" is not one of always, first, never");
        }
        if (optional_flag(description, "split", true, where)) {
            step.literal = step.replacement;
            step.behavior = Behavior::merged_with_next;
        }
        steps_.push_back(std::move(step));
    } else {
        const std::vector<CharacterSplit> splits = character_splits(description, type, where);
        if (splits.empty())
            throw Error(where + " \"" + type +
                        "\" is not supported; supported are Sequence, Split, Digits, ByteLevel, "
                        "Metaspace, Whitespace, WhitespaceSplit, Punctuation, BertPreTokenizer, "
                        "CharDelimiterSplit and FixedLength");
        for (const CharacterSplit& split : splits) {
            Step made;
            made.find = split.find;
            made.invert = split.invert;
            made.behavior = behavior_of(split.behavior, where);
            steps_.push_back(std::move(made));
        }
    }
}

PreTokenizer::Behavior PreTokenizer::behavior_of(const std::string& name,
                                                 const std::string& where) {
    if (name == "Isolated") return Behavior::isolated;
    if (name == "Removed") return Behavior::removed;
    if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
    if (name == "MergedWithNext") return Behavior::merged_with_next;
    if (name == "Contiguous") return Behavior::contiguous;
    throw Error(where + ": the behavior \"" + name + "\" is not supported");
}

void PreTokenizer::spell_bytes() {
    if (!byte_level_) return;
    if (steps_.empty()) steps_.emplace_back();
    steps_.back().spells_bytes = true;
    byte_level_ = false;
    only_cuts_ = false;
    scanner_ = KnownPattern::none;
}

void PreTokenizer::spell(PieceList& list) {
    // Where each byte of the text will be; pieces need not cover all of it.
    std::vector<std::size_t> places{0};
    places.reserve(list.text.text().size() + 1);
    for (const char byte : list.text.text())
        places.push_back(places.back() +
                         (byte_characters()[static_cast<unsigned char>(byte)] < 0x80 ? 1 : 2));
    for (ByteSpan& piece : list.pieces)
        piece = {places[piece.begin], places[piece.end]};
    list.text = spelled_as_bytes(list.text);
}

PieceList PreTokenizer::apply(AlignedText text, bool at_start) const {
    PieceList list{std::move(text), {}};
    if (!list.text.text().empty()) list.pieces.push_back({0, list.text.text().size()});
    for (const Step& step : steps_) {
        if (step.prefix != Prefix::never || !step.replacement.empty())
            rewrite(list, step, at_start);
        if (step.pattern || step.find || !step.literal.empty())
            split(list.text.text(), list.pieces, step);
        if (step.spells_bytes) spell(list);
    }
    return list;
}

void PreTokenizer::cut(std::string_view text, std::vector<ByteSpan>& pieces) const {
    GARAM_CHECK(only_cuts_, "a pre-tokenizer that changes texts");
    pieces.clear();
    if (scanner_ != KnownPattern::none) {
        scan(scanner_, text, pieces);
        return;
    }
    if (!text.empty()) pieces.push_back({0, text.size()});
    for (const Step& step : steps_)
        split(text, pieces, step);
}

// Puts the prefix before pieces that lack it and replaces spaces.
void PreTokenizer::rewrite(PieceList& list, const Step& step, bool at_start) {
    AlignedTextBuilder builder(list.text);
    std::vector<ByteSpan> pieces;
    pieces.reserve(list.pieces.size());
    for (std::size_t i = 0; i < list.pieces.size(); ++i) {
        const ByteSpan piece = list.pieces[i];
        const std::string_view view = list.text.view(piece);
        const std::size_t begin = builder.size();
        const bool wanted = step.prefix == Prefix::always ||
                            (step.prefix == Prefix::first && at_start && piece.begin == 0);
        const bool has = view.substr(0, step.prefix_text.size()) == step.prefix_text ||
                         (!step.replacement.empty() && view.front() == ' ');
        if (wanted && !has) builder.insert(piece.begin, step.prefix_text);
        std::size_t at = piece.begin;
        if (!step.replacement.empty()) {
            for (std::size_t space = view.find(' '); space != std::string_view::npos;
                 space = view.find(' ', space + 1)) {
                builder.keep(at, piece.begin + space);
                at = piece.begin + space + 1;
                builder.replace(at - 1, at, step.replacement);
            }
        }
        builder.keep(at, piece.end);
        pieces.push_back({begin, builder.size()});
    }
    list.text = builder.finish();
    list.pieces = std::move(pieces);
}

void PreTokenizer::split(std::string_view text, std::vector<ByteSpan>& pieces, const Step& step) {
    const std::vector<ByteSpan> whole = std::exchange(pieces, {});
    std::vector<ByteSpan> matches;
    struct Part {
        ByteSpan span;
        bool match;
    };
    std::vector<Part> parts;
    for (const ByteSpan piece : whole) {
        const std::string_view view = text.substr(piece.begin, piece.end - piece.begin);
        matches.clear();
        if (step.pattern) {
            step.pattern->find_all(view, matches);
        } else if (step.find) {
            matches = step.find(view);
        } else {
            find_literal(view, step.literal, matches);
        }
        parts.clear();
        std::size_t at = 0;
        const auto add = [&](std::size_t begin, std::size_t end, bool match) {
            if (begin < end)
                parts.push_back({{piece.begin + begin, piece.begin + end}, match != step.invert});
        };
        for (const ByteSpan match : matches) {
            add(at, match.begin, false);
            add(match.begin, match.end, true);
            at = match.end;
        }
        add(at, view.size(), false);
        bool joins = false;  // whether the next part belongs to the last piece
        for (std::size_t i = 0; i < parts.size(); ++i) {
            const Part& part = parts[i];
            const bool first = i == 0;
            bool join = false;
            switch (step.behavior) {
                case Behavior::isolated:
                    break;
                case Behavior::removed:
                    if (part.match) continue;
                    break;
                case Behavior::merged_with_previous:
                    join = part.match && !first && !parts[i - 1].match;
                    break;
                case Behavior::merged_with_next:
                    join = !part.match && joins;
                    joins = part.match;
                    break;
                case Behavior::contiguous:
                    join = !first && parts[i - 1].match == part.match;
                    break;
            }
            if (join) {
                pieces.back().end = part.span.end;
            } else {
                pieces.push_back(part.span);
            }
        }
    }
}

}  // namespace garam
