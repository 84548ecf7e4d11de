#include "garam/text/token_decoder.h"

#include <numeric>

#include "garam/core/error.h"
#include "garam/text/bpe_model.h"
#include "garam/text/unicode.h"

namespace garam {
namespace {

constexpr std::size_t kMaxSteps = 32;
// Bytes that steps may make of tokens: so many for each of their bytes and each token, and some more.
constexpr std::size_t kMostGrowth = 16;
constexpr std::size_t kMostAdded = std::size_t{64} << 10;
constexpr std::size_t kNoLimit = static_cast<std::size_t>(-1);

void check_size(std::size_t size, std::size_t limit) {
    if (size > limit)
        throw Error("the tokenizer's decoder makes more than " + std::to_string(limit) +
                    " bytes of tokens");
}

// Bytes that a token spells in GPT-2's characters; a token with any other character stands for itself.
std::string bytes_of(const std::string& token) {
    std::string bytes;
    for (std::size_t at = 0; at < token.size();) {
        const int byte = byte_of_character(next_code_point(token, at));
        if (byte < 0) return token;
        bytes += static_cast<char>(byte);
    }
    return bytes;
}

std::string replaced(const std::string& text, const std::string& pattern,
                     const std::string& content, std::size_t limit) {
    std::string out;
    std::size_t at = 0;
    for (std::size_t found = text.find(pattern); found != std::string::npos;
         found = text.find(pattern, at)) {
        out.append(text, at, found - at);
        out += content;
        check_size(out.size(), limit);
        at = found + pattern.size();
    }
    out.append(text, at);
    return out;
}

// The byte of "<0x0A>", or -1.
int fallback_byte(const std::string& token) {
    if (token.size() != 6 || token.compare(0, 3, "<0x") != 0 || token[5] != '>') return -1;
    int value = 0;
    for (const char digit : {token[3], token[4]}) {
        const int nibble = digit >= '0' && digit <= '9'   ? digit - '0'
                           : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10
                           : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
                                                          : -1;
        if (nibble < 0) return -1;
        value = value * 16 + nibble;
    }
    return value;
}

void join_fallback_bytes(std::vector<std::string>& tokens) {
    std::vector<std::string> out;
    std::string bytes;
    const auto flush = [&] {
        if (bytes.empty()) return;
        if (first_invalid_utf8(bytes) == std::string_view::npos) {
            out.push_back(bytes);
        } else {
            out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
        }
        bytes.clear();
    };
    for (std::string& token : tokens) {
        if (const int byte = fallback_byte(token); byte >= 0) {
            bytes += static_cast<char>(byte);
        } else {
            flush();
            out.push_back(std::move(token));
        }
    }
    flush();
    tokens = std::move(out);
}

std::string stripped(const std::string& text, const std::string& content, std::size_t start,
                     std::size_t stop) {
    std::size_t begin = 0;
    std::size_t end = text.size();
    const auto at = [&](std::size_t where) {
        return text.compare(where, content.size(), content) == 0;
    };
    for (std::size_t i = 0; i < start && begin + content.size() <= end && at(begin); ++i)
        begin += content.size();
    for (std::size_t i = 0; i < stop && end >= begin + content.size() && at(end - content.size());
         ++i)
        end -= content.size();
    return text.substr(begin, end - begin);
}

std::string with_matches_replaced(const std::string& text, const Pattern& pattern,
                                  const std::string& content, std::size_t limit) {
    std::string out;
    std::size_t at = 0;
    std::vector<ByteSpan> matches;
    pattern.find_all(text, matches);
    for (const ByteSpan match : matches) {
        out.append(text, at, match.begin - at);
        out += content;
        check_size(out.size(), limit);
        at = match.end;
    }
    out.append(text, at);
    return out;
}

// BERT's way to put punctuation and English contractions back to the word before them.
std::string cleaned_up(std::string text) {
    constexpr std::pair<const char*, const char*> kRules[] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : kRules)
        text = replaced(text, from, to, kNoLimit);
    return text;
}

void join_word_pieces(std::vector<std::string>& tokens, const std::string& prefix, bool cleans_up) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        std::string& token = tokens[i];
        if (i > 0 && token.starts_with(prefix)) {
            token.erase(0, prefix.size());
        } else if (i > 0) {
            token.insert(0, 1, ' ');
        }
        if (cleans_up) token = cleaned_up(std::move(token));
    }
}

}  // namespace

TokenDecoder::TokenDecoder(const Json* description, const std::string& source) {
    if (description == nullptr || description->is_null()) {
        joins_with_space_ = true;
    } else {
        add(*description, source);
    }
}

void TokenDecoder::add(const Json& description, const std::string& source) {
    const std::string where = source + ": decoder";
    const std::string& type = description.at("type", where).string(where + ".type");
    if (steps_.size() >= kMaxSteps) throw Error(where + ": more than 32 steps");
    const auto text = [&](std::string_view key) {
        return description.at(key, where).string(where + "." + std::string(key));
    };
    const auto count = [&](std::string_view key) {
        const std::int64_t value =
            description.at(key, where).integer(where + "." + std::string(key));
        if (value < 0) throw Error(where + "." + std::string(key) + " is negative");
        return static_cast<std::size_t>(value);
    };
    if (type == "Sequence") {
        for (const Json& step : description.at("decoders", where).array(where + ".decoders"))
            add(step, source);
    } else if (type == "ByteLevel") {
        steps_.push_back({Kind::byte_level, {}, {}});
    } else if (type == "Replace") {
        const Json& pattern = description.at("pattern", where);
        Step step{Kind::replace, {}, text("content")};
        if (const Json* expression = pattern.find("Regex")) {
            step.kind = Kind::replace_matches;
            step.expression =
                std::make_shared<Pattern>(expression->string(where + ".pattern.Regex"), where);
        } else {
            step.pattern = pattern.at("String", where + ".pattern").string(where + ".pattern");
            if (step.pattern.empty()) throw Error(where + ": Replace of an empty string");
        }
        steps_.push_back(step);
    } else if (type == "ByteFallback") {
        steps_.push_back({Kind::byte_fallback, {}, {}});
    } else if (type == "Fuse") {
        steps_.push_back({Kind::fuse, {}, {}});
    } else if (type == "Strip") {
        Step step{Kind::strip, {}, text("content"), count("start"), count("stop")};
        if (step.content.empty()) throw Error(where + ": Strip of an empty string");
        steps_.push_back(step);
    } else if (type == "Metaspace") {
        Step step{Kind::metaspace, text("replacement"), {}};
        if (step.pattern.empty()) throw Error(where + ": Metaspace with an empty replacement");
        const Json* scheme = description.find("prepend_scheme");
        const Json* prefixes = description.find("add_prefix_space");  // before there were schemes
        const bool never = scheme != nullptr
                               ? scheme->is_string() && scheme->string() == "never"
                               : prefixes != nullptr && prefixes->is_bool() && !prefixes->boolean();
        step.start = never ? 0 : 1;
        steps_.push_back(step);
    } else if (type == "BPEDecoder") {
        Step step{Kind::end_of_word, text("suffix"), {}};
        if (step.pattern.empty()) throw Error(where + ": BPEDecoder with an empty suffix");
        steps_.push_back(step);
    } else if (type == "WordPiece") {
        Step step{Kind::word_piece, text("prefix"), {}};
        const Json* cleanup = description.find("cleanup");
        step.cleans_up = cleanup == nullptr || cleanup->boolean(where + ".cleanup");
        steps_.push_back(step);
    } else {
        throw Error(
            where + " \"" + type +
            "\" is not supported; supported are Sequence, ByteLevel, Replace, ByteFallback, "
            "Fuse, Strip, Metaspace, BPEDecoder and WordPiece");
    }
}

void TokenDecoder::apply(const Step& step, std::vector<std::string>& tokens, std::size_t limit) {
    switch (step.kind) {
        case Kind::byte_level: {
            std::string bytes;
            for (const std::string& token : tokens)
                bytes += bytes_of(token);
            tokens.assign(1, replace_invalid_utf8(bytes));
            break;
        }
        case Kind::replace:
            for (std::string& token : tokens)
                token = replaced(token, step.pattern, step.content, limit);
            break;
        case Kind::replace_matches:
            for (std::string& token : tokens)
                token = with_matches_replaced(token, *step.expression, step.content, limit);
            break;
        case Kind::byte_fallback:
            join_fallback_bytes(tokens);
            break;
        case Kind::fuse: {
            std::string all;
            for (const std::string& token : tokens)
                all += token;
            tokens = {std::move(all)};
            break;
        }
        case Kind::strip:
            for (std::string& token : tokens)
                token = stripped(token, step.content, step.start, step.stop);
            break;
        case Kind::metaspace:
            for (std::size_t i = 0; i < tokens.size(); ++i) {
                // The first token loses its marks: encoding put one there.
                const bool drops = i == 0 && step.start > 0;
                tokens[i] = replaced(tokens[i], step.pattern, drops ? "" : " ", limit);
            }
            break;
        case Kind::end_of_word:
            for (std::size_t i = 0; i < tokens.size(); ++i)
                tokens[i] =
                    replaced(tokens[i], step.pattern, i + 1 == tokens.size() ? "" : " ", limit);
            break;
        case Kind::word_piece:
            join_word_pieces(tokens, step.pattern, step.cleans_up);
            break;
    }
}

std::string TokenDecoder::decode(std::vector<std::string> tokens) const {
    const auto bytes = [&] {
        return std::accumulate(
            tokens.begin(), tokens.end(), std::size_t{0},
            [](std::size_t sum, const std::string& token) { return sum + token.size(); });
    };
    const std::size_t limit = kMostAdded + kMostGrowth * (bytes() + tokens.size());
    for (const Step& step : steps_) {
        apply(step, tokens, limit);
        check_size(bytes(), limit);
    }
    std::string text;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (joins_with_space_ && i > 0) text += ' ';
        text += tokens[i];
    }
    return text;
}

}  // namespace garam
