#include "garam/text/normalizer.h"

#include <algorithm>

#include "garam/core/error.h"
#include "garam/text/character_filter.h"
#include "garam/text/unicode.h"

namespace garam {
namespace {

constexpr std::size_t kMaxSteps = 32;

AlignedText prepend(const AlignedText& text, const std::string& content) {
    if (text.text().empty()) return text;
    AlignedTextBuilder builder(text);
    builder.insert(0, content);
    builder.keep(0, text.text().size());
    return builder.finish();
}

// Puts `content` in place of each span that `next(from, at)` finds; one of no bytes ends the search.
template <typename Next>
AlignedText replace(const AlignedText& text, const std::string& content, Next next) {
    const std::string& from = text.text();
    ByteSpan found = next(std::string_view(from), std::size_t{0});
    if (found.begin == found.end) return text;
    AlignedTextBuilder builder(text);
    std::size_t at = 0;
    for (; found.begin < found.end; found = next(std::string_view(from), at)) {
        builder.keep(at, found.begin);
        at = found.end;
        builder.replace(found.begin, at, content);
    }
    builder.keep(at, from.size());
    return builder.finish();
}

AlignedText replace_string(const AlignedText& text, const std::string& pattern,
                           const std::string& content) {
    return replace(text, content, [&](std::string_view from, std::size_t at) {
        const std::size_t begin = from.find(pattern, at);
        return begin == std::string_view::npos ? ByteSpan{}
                                               : ByteSpan{begin, begin + pattern.size()};
    });
}

AlignedText replace_matches(const AlignedText& text, const Pattern& pattern,
                            const std::string& content) {
    std::vector<ByteSpan> matches;
    pattern.find_all(text.text(), matches);
    std::size_t number = 0;
    return replace(text, content, [&](std::string_view, std::size_t) {
        return number < matches.size() ? matches[number++] : ByteSpan{};
    });
}

AlignedText lowercase(const AlignedText& text) {
    const std::string& from = text.text();
    AlignedTextBuilder builder(text);
    std::string lower;
    for (std::size_t at = 0; at < from.size();) {
        const std::size_t begin = at;
        const char32_t c = next_code_point(from, at);
        lower.clear();
        append_utf8(lower, lower_case(c));
        if (c == 0x130) lower = "i\xCC\x87";  // the only character whose lower case is two
        if (lower == std::string_view(from).substr(begin, at - begin)) {
            builder.keep(begin, at);
        } else {
            builder.replace(begin, at, lower);
        }
    }
    return builder.finish();
}

AlignedText strip(const AlignedText& text, bool left, bool right) {
    const std::string& from = text.text();
    std::size_t begin = from.size();
    std::size_t end = 0;
    for (std::size_t at = 0; at < from.size();) {
        const std::size_t start = at;
        if (is_white_space(next_code_point(from, at))) continue;
        begin = std::min(begin, start);
        end = at;
    }
    if (!left) begin = 0;
    if (!right) end = from.size();
    AlignedTextBuilder builder(text);
    if (begin < end) builder.keep(begin, end);
    return builder.finish();
}

}  // namespace

Normalizer::Normalizer(const Json* description, const std::string& source) {
    if (description != nullptr && !description->is_null()) add(*description, source);
}

void Normalizer::add(const Json& description, const std::string& source) {
    const std::string where = source + ": normalizer";
    const std::string& type = description.at("type", where).string(where + ".type");
    if (steps_.size() >= kMaxSteps) throw Error(where + ": more than 32 steps");
    const auto compose = [&](bool composed, bool compatibility) {
        Step step{Kind::compose, {}, {}, {}};
        step.form = {composed, compatibility};
        steps_.push_back(step);
    };
    if (type == "Sequence") {
        for (const Json& step : description.at("normalizers", where).array(where + ".normalizers"))
            add(step, source);
    } else if (type == "NFC") {
        compose(true, false);
    } else if (type == "NFD") {
        compose(false, false);
    } else if (type == "NFKC") {
        compose(true, true);
    } else if (type == "NFKD") {
        compose(false, true);
    } else if (type == "Prepend") {
        Step step{
            Kind::prepend, {}, {}, description.at("prepend", where).string(where + ".prepend")};
        if (!step.content.empty()) steps_.push_back(step);
    } else if (type == "Replace") {
        add_replace(description, where);
    } else if (type == "Lowercase") {
        steps_.push_back({Kind::lowercase, {}, {}, {}});
    } else if (type == "Strip") {
        Step step{Kind::strip, {}, {}, {}};
        step.left = description.at("strip_left", where).boolean(where + ".strip_left");
        step.right = description.at("strip_right", where).boolean(where + ".strip_right");
        steps_.push_back(step);
    } else if (type == "StripAccents") {
        add_map(without_marks);
    } else if (type == "Nmt") {
        add_map(nmt_cleaned);
    } else if (type == "ByteLevel") {
        add_map(spelled_as_bytes);
    } else if (type == "BertNormalizer") {
        add_bert(description, where);
    } else if (type == "Precompiled") {
        const Json& blob = description.at("precompiled_charsmap", where);
        if (blob.is_null() || blob.string(where + ".precompiled_charsmap").empty()) return;
        const auto bytes = from_base64(blob.string());
        if (!bytes) throw Error(where + ".precompiled_charsmap is no base64");
        Step step{Kind::charsmap, {}, {}, {}};
        step.charsmap = std::make_shared<PrecompiledCharsmap>(*bytes, where);
        steps_.push_back(step);
    } else {
        throw Error(where + " \"" + type +
                    "\" is not supported; supported are Sequence, NFC, NFD, NFKC, NFKD, Prepend, "
                    "Replace, Lowercase, Strip, StripAccents, Nmt, Precompiled, BertNormalizer and "
                    "ByteLevel");
    }
}

void Normalizer::add_replace(const Json& description, const std::string& where) {
    const Json& pattern = description.at("pattern", where);
    Step step{Kind::replace, {}, {}, description.at("content", where).string(where + ".content")};
    if (const Json* expression = pattern.find("Regex")) {
        step.kind = Kind::replace_matches;
        step.expression =
            std::make_shared<Pattern>(expression->string(where + ".pattern.Regex"), where);
    } else {
        step.pattern = pattern.at("String", where + ".pattern").string(where + ".pattern.String");
        if (step.pattern.empty()) throw Error(where + ": Replace of an empty string");
    }
    steps_.push_back(std::move(step));
}

void Normalizer::add_map(AlignedText (*map)(const AlignedText&)) {
    Step step{Kind::map, {}, {}, {}};
    step.map = map;
    steps_.push_back(step);
}

void Normalizer::add_bert(const Json& description, const std::string& where) {
    const auto flag = [&](std::string_view key, bool otherwise) {
        const Json* value = description.find(key);
        return value == nullptr || value->is_null()
                   ? otherwise
                   : value->boolean(where + "." + std::string(key));
    };
    const bool lowercases = flag("lowercase", true);
    if (flag("clean_text", true)) add_map(bert_cleaned);
    if (flag("handle_chinese_chars", true)) add_map(with_spaced_ideographs);
    if (flag("strip_accents", lowercases)) {
        steps_.push_back({Kind::compose, {}, {}, {}});  // NFD
        add_map(without_nonspacing_marks);
    }
    if (lowercases) steps_.push_back({Kind::lowercase, {}, {}, {}});
}

AlignedText Normalizer::apply(AlignedText text) const {
    for (const Step& step : steps_) {
        switch (step.kind) {
            case Kind::compose:
                text = normal_form(text, step.form);
                break;
            case Kind::prepend:
                text = prepend(text, step.content);
                break;
            case Kind::replace:
                text = replace_string(text, step.pattern, step.content);
                break;
            case Kind::replace_matches:
                text = replace_matches(text, *step.expression, step.content);
                break;
            case Kind::charsmap:
                text = step.charsmap->apply(text);
                break;
            case Kind::map:
                text = step.map(text);
                break;
            case Kind::lowercase:
                text = lowercase(text);
                break;
            case Kind::strip:
                text = strip(text, step.left, step.right);
                break;
        }
    }
    return text;
}

bool Normalizer::leaves(std::string_view text) const {
    return std::all_of(steps_.begin(), steps_.end(), [&](const Step& step) {
        return step.kind == Kind::compose && is_normal(text, step.form);
    });
}

}  // namespace garam
