#include "garam/text/normalizer.h"

#include <algorithm>

#include "garam/core/error.h"
#include "garam/text/unicode.h"

namespace garam {
namespace {

constexpr std::size_t kMaxSteps = 32;
// Output of one step: a Replace that grows text must not eat the memory.
constexpr std::size_t kMaxBytes = std::size_t{1} << 30;

AlignedText prepend(const AlignedText& text, const std::string& content) {
    if (text.text().empty()) return text;
    AlignedTextBuilder builder(text);
    builder.insert(0, content);
    builder.keep(0, text.text().size());
    return builder.finish();
}

AlignedText replace(const AlignedText& text, const std::string& pattern,
                    const std::string& content) {
    const std::string& from = text.text();
    std::size_t found = from.find(pattern);
    if (found == std::string::npos) return text;
    AlignedTextBuilder builder(text);
    std::size_t at = 0;
    for (; found != std::string::npos; found = from.find(pattern, at)) {
        builder.keep(at, found);
        at = found + pattern.size();
        builder.replace(found, at, content);
        if (builder.size() > kMaxBytes)
            throw Error("a text grew beyond 1 GiB in the tokenizer's Replace normalizer");
    }
    builder.keep(at, from.size());
    return builder.finish();
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
        steps_.push_back({Kind::compose, {composed, compatibility}, {}, {}});
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
        const Json* pattern = description.at("pattern", where).find("String");
        if (pattern == nullptr)
            throw Error(where + ": Replace is supported with a plain String as its pattern only");
        Step step{Kind::replace,
                  {},
                  pattern->string(where + ".pattern.String"),
                  description.at("content", where).string(where + ".content")};
        if (step.pattern.empty()) throw Error(where + ": Replace of an empty string");
        steps_.push_back(step);
    } else if (type == "Lowercase") {
        steps_.push_back({Kind::lowercase, {}, {}, {}});
    } else if (type == "Strip") {
        Step step{Kind::strip, {}, {}, {}};
        step.left = description.at("strip_left", where).boolean(where + ".strip_left");
        step.right = description.at("strip_right", where).boolean(where + ".strip_right");
        steps_.push_back(step);
    } else {
        throw Error(where + " \"" + type +
                    "\" is not supported; supported are Sequence, NFC, NFD, NFKC, NFKD, Prepend, "
                    "Replace, Lowercase and Strip");
    }
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
                text = replace(text, step.pattern, step.content);
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
